// The filter below a column's title, such as `>= 128`, `64..256`, `64, 128`, `> 1M < 3M`, `native`, `!none`.

const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, ki: 1024, mi: 1048576, gi: 1073741824, b: 1 };
const NUMBER = String.raw`[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*(?:[kmgt]i?b?|b|%)?`;

/** A function from a value to whether it passes; null for an empty text. Throws an Error that says what is wrong. */
function filterOf(text, numeric) {
  const parts = text.split(/[,|]/).map((part) => part.trim());
  const tests = parts.filter(Boolean).map((part) => (numeric ? numberTest(part) : textTest(part)));
  if (!tests.length) return null;
  return (value) => tests.some((test) => test(value));
}

function textTest(part) {
  const [, not, equal, rest] = part.match(/^(!?)(=*)\s*(.*)$/);
  const wanted = rest.toLowerCase();
  return (value) => {
    const text = String(value ?? "").toLowerCase();
    return (equal ? text === wanted : text.includes(wanted)) !== Boolean(not);
  };
}

function numberTest(part) {
  const range = part.match(new RegExp(`^(${NUMBER})\\s*\\.\\.\\s*(${NUMBER})$`, "i"));
  if (range) {
    const [low, high] = [toNumber(range[1]), toNumber(range[2])];
    return (value) => isNumber(value) && value >= low && value <= high;
  }
  const pattern = new RegExp(`(<=|>=|!=|==|=|<|>)?\\s*(${NUMBER})\\s*(?:&&|&|\\band\\b)?\\s*`, "iy");
  const tests = [];
  while (pattern.lastIndex < part.length) {
    const found = pattern.exec(part);
    if (!found || (tests.length && !found[1])) throw new Error(`cannot read "${part}": try >= 128, 64..256 or 64, 128`);
    tests.push(compare(found[1] ?? "=", toNumber(found[2])));
  }
  return (value) => isNumber(value) && tests.every((test) => test(value));
}

const isNumber = (value) => typeof value === "number";

function toNumber(text) {
  const [, digits, unit] = text.toLowerCase().match(/^([+-]?[\d_]*\.?\d*(?:e[+-]?\d+)?)\s*([a-z%]*)$/);
  const factor = unit === "%" ? 0.01 : UNITS[unit.length > 1 ? unit.replace(/b$/, "") : unit];
  return Number(digits.replace(/_/g, "")) * factor;
}

function compare(sign, limit) {
  switch (sign) {
    case "<":
      return (value) => value < limit;
    case "<=":
      return (value) => value <= limit;
    case ">":
      return (value) => value > limit;
    case ">=":
      return (value) => value >= limit;
    case "!=":
      return (value) => value !== limit;
    default:
      return (value) => value === limit;
  }
}

// Numbers as people read them.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234567 as 1,234,567. */
const whole = (value) => grouped.format(value);

/** A number in about `digits` digits: 950, 12.3k, 4.56M, 0.873. */
function short(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  for (const [unit, name] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (size >= unit * 0.9995) return `${trim(value / unit, digits)}${name}`;
  }
  return size >= 1e-3 ? trim(value, digits) : value.toExponential(digits - 1);
}

function trim(value, digits) {
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)) + 1e-9));
  const text = value.toFixed(Math.min(places, 12));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Bytes, exact where that is short: 512 KiB, 1.5 MiB, 12.3 MB. */
function bytes(value) {
  for (const [unit, name] of [
    [1073741824, "GiB"],
    [1048576, "MiB"],
    [1024, "KiB"],
  ]) {
    if (value >= unit && value % (unit / 4) === 0) return `${value / unit} ${name}`;
  }
  return `${short(value)}B`.replace(/([kMGT])B$/, " $1B").replace(/(\d)B$/, "$1 B");
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** A difference with its sign. */
const signed = (value, text = whole) => (value > 0 ? `+${text(value)}` : value < 0 ? `\u2212${text(-value)}` : "0");

/** By how much a value differs from another one, which is not 0. */
const change = (value, first) =>
  signed((100 * (value - first)) / first, (part) =>
    part < 100 ? `${part.toFixed(part < 1 ? 2 : 1)} %` : `${short(part)} %`,
  );

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** An energy in \u00b5J, or in mJ where that is shorter. */
const joules = (micro) => (micro >= 1000 ? `${short(micro / 1000, 4)} mJ` : `${short(micro, 4)} \u00b5J`);

/** How long cycles take at a clock in Hz: 59.36 ms. */
function timeOf(cycles, clock) {
  const seconds = cycles / clock;
  const [scale, unit] = [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "\u00b5s"],
    [1e-9, "ns"],
  ].find(([least], n) => seconds >= least * 0.9995 || n === 3);
  return `${short(seconds / scale, 4)} ${unit}`;
}

const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// What makes the difference between two of the selected points.

const pair = { from: null, to: null };

/** What makes the difference between two points: by cause where both are explained, else by kind of layer. */
function difference() {
  const [from, to] = [pair.from, pair.to].map((number) => data.byNumber.get(number));
  if (!from || !to) return null;
  const [a, b] = [from, to].map(({ number }) => data.explanations.get(number)?.[layers.network]);
  const exact = a?.shares && b?.shares;
  const [left, right] = exact ? [a.shares, b.shares] : [from, to].map((row) => row.costs[layers.network].kinds);
  const names = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  const parts = names.map((name) => ({
    title: exact ? causeOf(name).title : data.header.systems ? name : `${name} layers`,
    doc: exact ? causeOf(name).doc : "",
    colour: exact ? causeOf(name).colour : colourOfKind(name),
    a: left[name] ?? 0,
    b: right[name] ?? 0,
  }));
  const total = exact
    ? { a: a.cycles, b: b.cycles }
    : { a: from.costs[layers.network].cycles, b: to.costs[layers.network].cycles };
  return make(
    "div",
    { class: "wide", id: "difference" },
    make("div", { class: "tools" }, make("h3", {}, "The difference"), pairChoice()),
    make(
      "p",
      { class: "soft" },
      changesText(from, to),
      total.b ? `: ${short(total.a / total.b, 3)} times as fast` : "",
    ),
    differenceTable(parts, from.number, to.number, total),
  );
}

function changesText(from, to) {
  const changed = data.columns.filter(
    (column) => column.group === "parameters" && from.values[column.key] !== to.values[column.key],
  );
  return (
    changed
      .map(
        (column) =>
          `${column.title} ${shown(column, from.values[column.key]) || "none"} \u2192 ` +
          (shown(column, to.values[column.key]) || "none"),
      )
      .join(", ") || "the same configuration"
  );
}

/** A table of what makes the difference; `parts` are {name, title, doc, colour, a, b}. */
function differenceTable(parts, from, to, total) {
  const most = Math.max(...parts.map(({ a, b }) => Math.abs(b - a)), 1);
  const sorted = [...parts].filter(({ a, b }) => a !== b).sort((p, q) => Math.abs(q.b - q.a) - Math.abs(p.b - p.a));
  const line = ({ title, doc, colour, a, b }) =>
    tr(
      rowHead(doc, make("i", { class: "swatch square", css: { background: colour } }), title),
      [whole(a), whole(b), signed(b - a)].map((text) => figure(text)),
      make("td", { class: "swings" }, swing(b - a, most)),
    );
  const sum = make(
    "tr",
    { class: "total" },
    rowHead("", "cycles"),
    [whole(total.a), whole(total.b), signed(total.b - total.a)].map((text) => figure(text)),
    td(),
  );
  const heads = [
    head("cycles spent on"),
    figureHead(badge(from)),
    figureHead(badge(to)),
    figureHead("difference"),
    make("th", { scope: "col", class: "swings" }, "fewer | more"),
  ];
  return plainTable({}, heads, [...sorted.map(line), sum]);
}

/** Two menus that say which points are compared. */
function pairChoice() {
  const choice = (which) => {
    const options = state.selected.map((number) =>
      option(number, `${letterOf(number)} (point ${number})`, pair[which]),
    );
    return menu(`pair-${which}`, which, options, (value) => {
      pair[which] = Number(value);
      drawLayers();
    });
  };
  return make("span", { class: "pair" }, choice("from"), choice("to"));
}

/** The pair that is compared: as chosen, else the first two selected. */
function settlePair() {
  if (!state.selected.includes(pair.from)) pair.from = state.selected[0] ?? null;
  if (!state.selected.includes(pair.to) || pair.to === pair.from)
    pair.to = state.selected.find((number) => number !== pair.from) ?? null;
}

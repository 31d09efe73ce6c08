// Where the cycles of the selected points go, layer by layer, from their explanations.

const layers = { network: 0, order: "network", body: null };

function buildLayers() {
  layers.body = make("div");
  on("selection", () => {
    askForExplanations();
    drawLayers();
  });
  on("explained", drawLayers);
  return tipsWithin(
    make(
      "section",
      { class: "card", id: "layers", "aria-labelledby": "layers-title", hidden: true },
      make(
        "div",
        { class: "tools" },
        make("h2", { id: "layers-title" }, "Where the cycles go"),
        make("span", { class: "grow" }),
        make("span", { id: "layer-tools" }),
      ),
      layers.body,
    ),
  );
}

/** The explanations there are: {number, explanation} in the order of selection. */
function explained() {
  return state.selected
    .map((number) => ({ number, explanation: data.explanations.get(number)?.[layers.network] }))
    .filter(({ explanation }) => explanation?.layers);
}

function drawLayers() {
  const section = byId("layers");
  const rows = selectedRows();
  section.hidden = !rows.length;
  if (!rows.length) return;
  settlePair();
  const found = explained();
  const parts = [kindBars(rows), waitingNotes(rows)];
  if (found.length) parts.push(causeBars(found));
  const left = found.length ? [nextTable(found), roofline(found)] : [];
  const right = rows.length > 1 ? [difference()] : [];
  if (found.length > 3) parts.push(left.shift()); // too wide for a half
  parts.push(
    make(
      "div",
      { class: "halves" },
      ...(left.length && right.length ? [left, right].map((each) => make("div", {}, each)) : [...left, ...right]),
    ),
  );
  if (found.length) parts.push(layerTable(found));
  byId("layer-tools").replaceChildren(networkChoice());
  layers.body.replaceChildren(...parts.filter(Boolean));
}

function networkChoice() {
  const { networks } = data.header;
  if (networks.length < 2) return "";
  return make(
    "label",
    {},
    "network",
    make(
      "select",
      { id: "network", onchange: (event) => ((layers.network = Number(event.target.value)), drawLayers()) },
      networks.map(({ source }, n) => make("option", { value: n, selected: n === layers.network }, source)),
    ),
  );
}

function waitingNotes(rows) {
  const notes = rows.map(({ number, costs }) => {
    const known = data.explanations.get(number);
    if (known === "pending")
      return make(
        "p",
        { class: "note" },
        badge(number),
        make("span", { class: "spinner" }),
        " compiling and explaining this point\u2026",
      );
    if (known?.error) return make("p", { class: "note reason" }, badge(number), ` ${known.error}`);
    const explanation = known?.[layers.network];
    if (!explanation)
      return make(
        "p",
        { class: "note soft" },
        badge(number),
        " no layers are stored for this point, the bars above show its kinds of layers; `dovetail serve` explains any.",
      );
    if (explanation.cycles !== costs[layers.network].cycles) {
      return make(
        "p",
        { class: "note reason" },
        badge(number),
        ` was priced at ${whole(costs[layers.network].cycles)} cycles and takes ${whole(explanation.cycles)} now:`,
        " compiler or network have changed since",
      );
    }
    return "";
  });
  return notes.some(Boolean) ? make("div", {}, notes) : null;
}

const causeOf = (name) => data.header.causes[name] ?? { title: name, bound: name, doc: "", colour: "#999999" };
const colourOfBound = (name) => data.header.colours.bounds[name] ?? "#999";

/** Cycles by cause, those of one bound side by side. */
function causeParts({ shares, cycles }) {
  return Object.entries(data.header.causes)
    .filter(([name]) => shares[name])
    .map(([name, { title, bound, colour }]) => ({
      name: title,
      value: shares[name],
      colour,
      more: `${whole(shares[name])} cycles, ${percent(shares[name] / cycles)} (${bound})`,
    }));
}

const SEEN = 0.002; // part of the cycles from which a cause stands in the legend

function causeBars(found) {
  const most = Math.max(...found.map(({ explanation }) => explanation.cycles));
  const seen = Object.entries(data.header.causes).filter(([name]) =>
    found.some(({ explanation }) => explanation.shares[name] > SEEN * explanation.cycles),
  );
  const lines = found.map(({ number, explanation }) =>
    make(
      "div",
      { class: "barline" },
      badge(number),
      stack(causeParts(explanation), most),
      make("span", { class: "number" }, whole(explanation.cycles)),
    ),
  );
  return make(
    "div",
    { class: "bars", id: "cause-bars" },
    make("h3", {}, "What each cycle is spent on"),
    legendOf(seen.map(([, { title, colour, doc }]) => [title, colour, doc])),
    lines,
  );
}

/** What would come next: the network with one resource free. */
function nextTable(found) {
  const resources = [...new Set(found.flatMap(({ explanation }) => explanation.next.map(({ resource }) => resource)))];
  if (!resources.length) return null;
  const cell = (explanation, resource) => {
    const what = explanation.next.find((each) => each.resource === resource);
    if (!what) return make("td", { class: "number soft" }, "\u2013");
    const share = (what.cycles - explanation.cycles) / explanation.cycles;
    return make(
      "td",
      { class: "number" },
      whole(what.cycles),
      make("small", {}, `${signed(100 * share, (part) => `${part.toFixed(part < 1 ? 2 : 1)} %`)}, then ${what.bound}`),
    );
  };
  return make(
    "div",
    { class: "wide", id: "if-free" },
    make("h3", {}, "If one thing cost no time"),
    make(
      "table",
      { class: "plain", id: "next" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", {}, "free"),
          found.map(({ number }) => make("th", { class: "number" }, badge(number))),
        ),
      ),
      make(
        "tbody",
        {},
        resources.map((resource) =>
          make(
            "tr",
            {},
            make(
              "th",
              { scope: "row", title: data.header.resources[resource]?.doc },
              data.header.resources[resource]?.title ?? resource,
            ),
            found.map(({ explanation }) => cell(explanation, resource)),
          ),
        ),
      ),
    ),
  );
}

function layerTable(found) {
  const names = new Map();
  for (const { explanation } of found)
    for (const layer of explanation.layers) if (!names.has(layer.name)) names.set(layer.name, layer);
  const lines = [...names.values()].map((layer, place) => ({
    layer,
    place,
    of: found.map(({ explanation }) => explanation.layers.find(({ name }) => name === layer.name)),
  }));
  const [from, to] = [pair.from, pair.to].map((number) => found.findIndex((each) => each.number === number));
  const differs = from >= 0 && to >= 0;
  const change = ({ of }) => (of[to]?.cycles ?? 0) - (of[from]?.cycles ?? 0);
  const most = Math.max(1, ...lines.flatMap(({ of }) => of.map((layer) => layer?.cycles ?? 0)));
  const orders = {
    network: (a, b) => a.place - b.place,
    cycles: (a, b) =>
      Math.max(...b.of.map((layer) => layer?.cycles ?? 0)) - Math.max(...a.of.map((layer) => layer?.cycles ?? 0)),
    difference: (a, b) => Math.abs(change(b)) - Math.abs(change(a)),
  };
  lines.sort(orders[differs || layers.order !== "difference" ? layers.order : "network"]);
  const order = make(
    "label",
    {},
    "order",
    make(
      "select",
      { id: "layer-order", onchange: (event) => ((layers.order = event.target.value), drawLayers()) },
      [
        ["network", "of the network"],
        ["cycles", "most cycles first"],
        ...(differs ? [["difference", "largest difference first"]] : []),
      ].map(([value, text]) => make("option", { value, selected: value === layers.order }, text)),
    ),
  );
  const head = make(
    "tr",
    {},
    make("th", {}, "layer"),
    make("th", {}, "kind"),
    make("th", { class: "number" }, "MACs"),
    found.map(({ number }) => make("th", { class: "number" }, badge(number), " cycles, bound")),
    differs ? make("th", { class: "number" }, `${letterOf(pair.to)} \u2212 ${letterOf(pair.from)}`) : "",
    make("th", { class: "wideb" }, "what the cycles are spent on"),
  );
  const row = (line) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", title: line.layer.name }, make("span", { class: "name" }, line.layer.name)),
      make(
        "td",
        {},
        make("i", { class: "swatch square", css: { background: colourOfKind(line.layer.kind) } }),
        line.layer.kind,
      ),
      make("td", { class: "number" }, whole(line.layer.macs)),
      line.of.map((layer) => make("td", { class: "number" }, layer ? cyclesAndBound(layer) : "host")),
      differs ? make("td", { class: `number ${change(line) < 0 ? "less" : "more"}` }, signed(change(line))) : "",
      make(
        "td",
        { class: "wideb" },
        line.of.map((layer) =>
          layer ? stack(causeParts(layer), most, Math.max(layer.bound_compute, layer.bound_memory)) : "",
        ),
      ),
    );
  return make(
    "div",
    { id: "layer-table" },
    make("div", { class: "tools" }, make("h3", {}, `${plural(lines.length, "layer")}`), order),
    make(
      "div",
      { class: "wide" },
      make("table", { class: "plain layers" }, make("thead", {}, head), make("tbody", {}, lines.map(row))),
    ),
  );
}

function cyclesAndBound({ cycles, bound, bounds }) {
  const swatch = make("i", { class: "swatch square", css: { background: colourOfBound(bound) } });
  const text = bound && make("small", {}, swatch, `${bound} ${percent(bounds[bound] / cycles)}`);
  return [make("span", { class: "cycles" }, whole(cycles)), text];
}

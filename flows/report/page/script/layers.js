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
  const parts = [kindBars(rows), ...notes(rows)];
  if (found.length) parts.push(causeBars(found));
  if (found.some(({ explanation }) => explanation.energy)) parts.push(energyBars(found));
  const halves = (...boxes) => make("div", { class: "halves" }, boxes);
  const next = found.length ? nextTables(found) : null;
  const right = [rows.length > 1 ? difference() : null, found.length ? roofline(found) : null];
  if (found.length > 3)
    parts.push(next, halves(right)); // too wide for a half
  else parts.push(halves(next, make("div", {}, right)));
  if (found.length) parts.push(layerTable(found));
  byId("layer-tools").replaceChildren(networkChoice());
  layers.body.replaceChildren(...parts.filter(Boolean));
}

function networkChoice() {
  const { networks } = data.header;
  if (networks.length < 2) return "";
  const options = networks.map(({ source }, n) => option(n, source, layers.network));
  return menu("network", "network", options, (value) => {
    layers.network = Number(value);
    drawLayers();
  });
}

/** What must be known of the selected points to read the rest. */
function notes(rows) {
  const note = (number, kind, ...text) => make("p", { class: `note ${kind}` }, badge(number), make("span", {}, text));
  return rows.flatMap((row) => {
    const { number, costs } = row;
    const { cycles, hostMacs, hostCycles } = costs[layers.network];
    const known = data.explanations.get(number);
    const now = known?.[layers.network]?.cycles;
    const clock = clockOf(row);
    const left = hostMacs ? `, with ${whole(hostMacs)} MACs left to it` : "";
    const host = data.header.host;
    const onHost = isNumber(hostCycles) ? hostCycles * (host.clock ? clock / host.clock : 1) : null;
    const beside =
      onHost === null
        ? "; no cycle of the host was counted"
        : `; beside these the host takes about ${whole(onHost)} cycles, ${timeOf(onHost, clock)}${left} (an estimate: ` +
          `${host.basis})`;
    const spent = `${whole(cycles)} cycles on the accelerator, ${timeOf(cycles, clock)} at ${short(clock / 1e6)} MHz`;
    if (data.header.systems) {
      const time = `${timeOf(cycles, clock)} at ${short(clock / 1e6)} MHz`;
      const told = `${whole(cycles)} cycles of the plan per inference, ${time}`;
      return [note(number, "soft", `${told}; \`dovetail explain --system\` tells its jobs`)];
    }
    const found = [note(number, "soft host-note", `${spent}${beside}`)];
    if (known === "pending")
      found.push(note(number, "", make("i", { class: "spinner" }), " compiling and explaining this point\u2026"));
    else if (known?.error) found.push(note(number, "reason", known.error));
    else if (!known)
      found.push(note(number, "soft", "is not explained in this file; `dovetail serve` explains any point"));
    else if (now !== cycles)
      found.push(
        note(
          number,
          "reason",
          `was priced at ${whole(cycles)} cycles and takes ${whole(now)} now: compiler or network have changed since`,
        ),
      );
    return found;
  });
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
    barLine(number, stack(causeParts(explanation), most), explanation.cycles),
  );
  const legend = seen.map(([, { title, colour, doc }]) => [title, colour, doc]);
  return barsOf("cause-bars", "What each cycle is spent on", legend, lines);
}

/** Energy by component. */
function energyBars(found) {
  const known = found.filter(({ explanation }) => explanation.energy);
  const most = Math.max(...known.map(({ explanation }) => explanation.energy.total));
  const components = Object.entries(data.header.energy).filter(([name]) =>
    known.some(({ explanation }) => explanation.energy.components[name]),
  );
  const lines = known.map(({ number, explanation: { energy } }) => {
    const parts = components.map(([name, { colour }]) => ({
      name,
      value: energy.components[name],
      colour,
      more: `${joules(energy.components[name])}, ${percent(energy.components[name] / energy.total)}`,
    }));
    return barLine(number, stack(parts, most), energy.total, joules);
  });
  const { table, error, not_counted } = known[0].explanation.energy;
  const legend = components.map(([name, { doc, colour }]) => [name, colour, doc]);
  const said = `An estimate by the table ${table}; ${error}. Not counted: ${not_counted.join(", ")}.`;
  return barsOf("energy-bars", "Where the energy goes", legend, lines, make("p", { class: "soft" }, said));
}

/** The clock of a point in Hz. */
const clockOf = ({ values }) => values.clock || data.header.clock;

const resourceOf = (name) => data.header.resources[name] ?? { title: name, doc: "" };

/** What would come next: the network with one resource free, and with what then bounds it free as well, and so on. */
function nextTables(found) {
  const points = found.map(({ number }) => figureHead(badge(number)));
  const resources = [...new Set(found.flatMap(({ explanation }) => explanation.next.map(({ resource }) => resource)))];
  if (!resources.length) return null;
  const single = resources.map((name) =>
    tr(
      rowHead(resourceOf(name).doc, resourceOf(name).title),
      found.map(({ explanation }) => {
        const what = explanation.next.find(({ resource }) => resource === name);
        return whatIf(explanation, what, what && `then ${what.bound}`);
      }),
    ),
  );
  const steps = Math.max(...found.map(({ explanation }) => explanation.ladder.length));
  const ladder = Array.from({ length: steps }, (_, n) =>
    tr(
      rowHead("", n + 1),
      found.map(({ explanation }) => {
        const what = explanation.ladder[n];
        return whatIf(explanation, what, what && `${n ? "and " : ""}${resourceOf(what.resource).title} free`);
      }),
    ),
  );
  const left = found.map(({ explanation: { bound, ladder } }) => figure(ladder.at(-1)?.bound ?? bound));
  return make(
    "div",
    { class: "wide" },
    make("h3", {}, "Cycles if one thing cost no time"),
    plainTable({ id: "next" }, [head("free"), points], single),
    make("h3", {}, "Cycles if one bottleneck after the other cost no time"),
    plainTable(
      { id: "ladder" },
      [head("step"), points.map((each) => each.cloneNode(true))],
      [...ladder, tr(rowHead("", "then bound by"), left)],
    ),
  );
}

function whatIf({ cycles }, what, told) {
  if (!what) return figure("\u2013");
  const by = what.cycles === cycles ? "no change" : change(what.cycles, cycles);
  return figure(whole(what.cycles), make("small", {}, `${by}, ${told}`));
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
  const gain = ({ of }) => (of[to]?.cycles ?? 0) - (of[from]?.cycles ?? 0);
  const most = Math.max(1, ...lines.flatMap(({ of }) => of.map((layer) => layer?.cycles ?? 0)));
  const orders = {
    network: (a, b) => a.place - b.place,
    cycles: (a, b) =>
      Math.max(...b.of.map((layer) => layer?.cycles ?? 0)) - Math.max(...a.of.map((layer) => layer?.cycles ?? 0)),
    difference: (a, b) => Math.abs(gain(b)) - Math.abs(gain(a)),
  };
  lines.sort(orders[differs || layers.order !== "difference" ? layers.order : "network"]);
  const choices = [
    ["network", "of the network"],
    ["cycles", "most cycles first"],
    ...(differs ? [["difference", "largest difference first"]] : []),
  ].map(([value, text]) => option(value, text, layers.order));
  const order = menu("layer-order", "order", choices, (value) => {
    layers.order = value;
    drawLayers();
  });
  const clocks = found.map(({ number }) => clockOf(data.byNumber.get(number)));
  const withEnergy = found.every(({ explanation }) => explanation.energy);
  const energies = found.map(
    ({ explanation }) => new Map(explanation.energy?.layers.map(({ name, total }) => [name, total])),
  );
  const energyOf = (n, name) => short(energies[n].get(name) ?? 0);
  const heads = [
    head("layer"),
    head("kind"),
    figureHead("MACs"),
    found.map(({ number }) => figureHead(badge(number), " cycles, bound")),
    withEnergy ? found.map(({ number }) => figureHead(badge(number), " \u00b5J")) : "",
    differs ? figureHead(`${letterOf(pair.to)} \u2212 ${letterOf(pair.from)}`) : "",
    make("th", { scope: "col", class: "wideb" }, "what the cycles are spent on"),
  ];
  const row = (line) =>
    tr(
      rowHead(line.layer.name, make("span", { class: "name" }, line.layer.name)),
      td(make("i", { class: "swatch square", css: { background: colourOfKind(line.layer.kind) } }), line.layer.kind),
      figure(whole(line.layer.macs)),
      line.of.map((layer, n) => figure(layer ? cyclesAndBound(layer, clocks[n]) : "host")),
      withEnergy ? line.of.map((layer, n) => figure(layer ? energyOf(n, line.layer.name) : "")) : "",
      differs ? make("td", { class: `number ${gain(line) < 0 ? "less" : "more"}` }, signed(gain(line))) : "",
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
    make("div", { class: "wide" }, plainTable({ class: "plain layers" }, heads, lines.map(row))),
  );
}

function cyclesAndBound({ cycles, bound, bounds }, clock) {
  const swatch = make("i", { class: "swatch square", css: { background: colourOfBound(bound) } });
  const text = bound && make("small", {}, swatch, `${bound} ${percent(bounds[bound] / cycles)}`);
  return [make("span", { class: "cycles", title: timeOf(cycles, clock) }, whole(cycles)), text];
}

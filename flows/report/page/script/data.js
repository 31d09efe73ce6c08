// Rows and columns, from what the page carries or the server sends.

const data = {
  header: null,
  rows: [], // {number, error, seconds, values, costs, front, feasible, confirmed}
  byNumber: new Map(),
  columns: [],
  byKey: new Map(),
  kinds: {}, // of layers in the order of a stack -> colour
  total: 0,
  notes: [], // of estimates
  fates: [], // of constraints
  miss: "", // what is nearest to being feasible, if nothing is
  telling: "", // the axis that tells most by its colour
  explanations: new Map(), // number -> one per network, {error} or "pending"
};

const STATES = ["front", "feasible", "on host", "infeasible", "failed"];

/** Adds rows; one of a number that is there already takes its place. */
function addRows(encoded) {
  const { parameters, metrics, networks } = data.header;
  for (const [number, error, seconds, given, measured, costs, doubts] of encoded) {
    const row = {
      number,
      error,
      seconds,
      costs: costs.map(([cycles, bound, hostMacs, kinds, hostCycles]) => ({ cycles, bound, hostMacs, kinds, hostCycles })),
      values: {},
      front: false,
      competes: true,
      confirmed: "",
      unsure: new Set(doubts[0]), // metrics that are estimates whose error nobody knows
      outside: doubts[1] ?? "",
    };
    row.values.area_error = doubts.length ? (doubts[2] ?? "not known") : null;
    row.values.part = doubts[3] ?? null;
    row.values.number = number;
    row.values.error = error;
    row.values.seconds = costs.length ? seconds : null;
    parameters.forEach(({ name }, n) => (row.values[name] = given[n]));
    if (measured) metrics.forEach((name, n) => (row.values[name] = measured[n]));
    row.costs.forEach((cost, n) => {
      for (const [kind, cycles] of Object.entries(cost.kinds)) {
        row.values[`kind ${kind}`] = (row.values[`kind ${kind}`] ?? 0) + cycles * networks[n].weight;
      }
    });
    const before = data.byNumber.get(number);
    if (before) data.rows[data.rows.indexOf(before)] = row;
    else data.rows.push(row);
    data.byNumber.set(number, row);
  }
}

/** What may have changed since: the front, feasibility, verdicts of the RTL. */
function setStates({ infeasible, aside, front, confirmed, notes, constraints, miss, colour, kinds }) {
  Object.assign(data, { notes, fates: constraints, miss, telling: colour, kinds });
  const [fails, leaves, leads] = [infeasible, aside, front].map((numbers) => new Set(numbers));
  const stateOf = ({ number, costs }) => {
    if (!costs.length) return "failed";
    if (fails.has(number)) return "infeasible";
    if (leaves.has(number)) return "on host";
    return leads.has(number) ? "front" : "feasible";
  };
  for (const row of data.rows) {
    row.values.state = stateOf(row);
    row.front = row.values.state === "front";
    row.competes = row.front || row.values.state === "feasible";
    row.confirmed = confirmed[row.number] ?? "";
    row.values.confirmed = row.confirmed;
  }
}

/** Columns of the rows there are: what is the same everywhere is marked `same`. */
function setColumns() {
  const kinds = Object.keys(data.kinds).map((kind) => ({
    key: `kind ${kind}`,
    title: `${kind} cycles`,
    unit: "cycles",
    more: false,
    group: "cycles per kind",
    doc: data.header.systems ? `cycles of the plan per inference, accelerators ${kind}` : `cycles of ${kind} layers`,
  }));
  data.columns = [...data.header.columns.map((column) => ({ ...column })), ...kinds];
  for (const column of data.columns) describe(column);
  data.byKey = new Map(data.columns.map((column) => [column.key, column]));
}

const SAID = ["", "%", "B", "Hz", "s", "cycles", "1/s", "MACs"]; // units that a title or a value says by itself

/** What the rows say about a column: its values, and whether they are numbers. */
function describe(column) {
  column.label = SAID.includes(column.unit ?? "") ? column.title : `${column.title}, ${column.unit}`;
  column.heading ??= column.label;
  let numeric = true;
  let every = true;
  const found = new Set();
  for (const row of data.rows) {
    const value = row.values[column.key];
    if (value === null || value === undefined) every &&= !row.costs.length;
    else {
      if (typeof value !== "number") numeric = false;
      if (found.size < 200) found.add(value);
    }
  }
  const order = column.key === "state" ? STATES : column.order ?? []; // an axis of words as the space has it
  const ordered = order.length ? order.filter((value) => found.has(value)) : [...found].sort(inOrder);
  Object.assign(column, { numeric: numeric && found.size > 0, distinct: ordered, same: found.size <= 1 && every });
}

/** Numbers by size, everything else as text; what is missing comes last. */
function inOrder(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined || a === "") return 1;
  if (b === null || b === undefined || b === "") return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1;
}

/** A value as the table shows it. */
function shown(column, value) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return String(value);
  if (column.unit === "B") return bytes(value);
  if (column.unit === "Hz") return `${value / 1e6} MHz`;
  if (column.unit === "%") return percent(value);
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? whole(value) : value.toPrecision(4);
}

const UNSURE = "?"; // behind an estimate whose error is not known

/** A row's value as the table shows it, an estimate of unknown error marked. */
const told = (column, row) =>
  `${shown(column, row.values[column.key])}${row.unsure.has(column.key) && isNumber(row.values[column.key]) ? UNSURE : ""}`;

/** A value as an axis shows it. */
function tickOf(column, value, digits) {
  if (column.unit === "B") return bytes(value);
  if (column.unit === "Hz") return `${short(value / 1e6, digits)} MHz`;
  if (column.unit === "%") return `${short(100 * value, digits)} %`;
  return short(value, digits);
}

/** Values as an axis shows them, in as many digits as tell them apart. */
function ticksOf(column, values) {
  const texts = (digits) => values.map((value) => tickOf(column, value, digits));
  const enough = [3, 4, 5, 6].find((digits) => new Set(texts(digits)).size === values.length);
  return texts(enough ?? 7);
}

const titleOf = (key) => data.byKey.get(key)?.title ?? key;

const colourOfKind = (kind) => data.kinds[kind] ?? "#999";

/** What varies about a point, in a line. */
function labelOf(row) {
  const parts = data.columns
    .filter((column) => column.axis && !column.same)
    .map((column) => `${column.title} ${shown(column, row.values[column.key])}`);
  return parts.join(", ") || `point ${row.number}`;
}

/** The configuration as `--config` reads it. */
function tomlOf(row) {
  const written = ({ name, size, names }) => {
    const value = row.values[name];
    return JSON.stringify(size ? exactSize(value) : names ? value.split("+") : value);
  };
  const line = (parameter) => `${parameter.name} = ${written(parameter)}`;
  const given = data.header.parameters.filter(({ name }) => isGiven(row, name));
  const memory = given.filter((parameter) => parameter.memory).map(line);
  return [...given.filter((parameter) => !parameter.memory).map(line), "", "[memory]", ...memory, ""].join("\n");
}

const exactSize = (value) =>
  value % 1048576 === 0 ? `${value / 1048576} MiB` : value % 1024 === 0 ? `${value / 1024} KiB` : `${value} B`;

function isGiven(row, name) {
  if (name === "pe" || name === "dataflow" || name === "clock" || row.values[name] === null) return false;
  return name !== "extensions" || row.values[name] !== "none";
}

/** The commands that price a point again, one per network. */
function commandsOf(row) {
  const { networks, parameters, tiling, effort } = data.header;
  const compiler = `--tiling ${tiling} --effort ${effort}${data.header.keep_weights ? " --keep-weights" : ""}`;
  const derived = ["ic_lanes", "oc_lanes", "pixel_lanes", "stripe", "banks", "requant_lanes", "vector_lanes"];
  const flags = parameters
    .filter(({ name, default: usual }) => isGiven(row, name) && (derived.includes(name) || row.values[name] !== usual))
    .map(({ name, flag, size }) => `${flag} ${size ? exactSize(row.values[name]).replace(" ", "") : row.values[name]}`);
  return networks.map(({ source, shapes }) => {
    const sizes = Object.entries(shapes).map(([input, dims]) => `--shape ${quoted(`${input}=${dims.join("x")}`)}`);
    return ["dovetail compile", quoted(source), ...sizes, compiler, ...flags].join(" ");
  });
}

/** A word for a POSIX shell. */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

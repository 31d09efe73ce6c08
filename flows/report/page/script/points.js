// The selected points side by side: what they are, what they cost, and how to get them again.

function buildPoints() {
  const body = make("div");
  const clear = button("Clear selection", () => setSelected([]));
  const draw = () => {
    const rows = selectedRows();
    clear.hidden = !rows.length;
    body.replaceChildren(rows.length ? sideBySide(rows) : hintToSelect());
  };
  on("selection", draw);
  on("states", draw);
  return tipsWithin(
    make(
      "section",
      { class: "card", id: "selected", "aria-labelledby": "selected-title" },
      make(
        "div",
        { class: "tools" },
        make("h2", { id: "selected-title" }, "Selected points"),
        make("span", { class: "grow" }),
        clear,
      ),
      body,
    ),
  );
}

const selectedRows = () => state.selected.map((number) => data.byNumber.get(number)).filter(Boolean);

const hintToSelect = () =>
  make(
    "p",
    { class: "hint" },
    `Select up to ${MOST_SELECTED} points, in the chart or in the table, to see them side by side: `,
    "metrics, cycles per kind of layer, layers and their rooflines, and what makes the difference between two.",
  );

function sideBySide(rows) {
  const known = ({ key }) => rows.some(({ values }) => (values[key] ?? "") !== "");
  const columns = data.columns.filter(
    (column) =>
      ((column.axis && !column.same) || column.metric || ["confirmed", "part", "area_error"].includes(column.key)) &&
      known(column),
  );
  const heads = rows.map((row) =>
    make(
      "th",
      { scope: "col" },
      badge(row.number),
      ` #${row.number} `,
      button("\u2715", () => toggle(row.number), { class: "bare", "aria-label": `remove point ${row.number}` }),
    ),
  );
  const lines = columns.map((column) => {
    const values = rows.map((row) => row.values[column.key]);
    const numbers = values.filter(isNumber);
    const best =
      column.metric && rows.length > 1 && new Set(numbers).size > 1
        ? column.more
          ? Math.max(...numbers)
          : Math.min(...numbers)
        : null;
    return tr(
      rowHead(column.doc, column.label),
      values.map((value, n) =>
        make(
          "td",
          { class: `number${value === best && best !== null ? " best" : ""}` },
          exactly(column, rows[n], value),
          n && column.metric && isNumber(value) && values[0] && value !== values[0]
            ? make("small", {}, change(value, values[0]))
            : "",
        ),
      ),
    );
  });
  return make(
    "div",
    {},
    make("div", { class: "wide" }, plainTable({ class: "plain side" }, [td(), heads], lines)),
    !data.header.systems && make( // whose accelerators have files of their own
      "details",
      { class: "texts", open: sideBySide.open, ontoggle: (event) => (sideBySide.open = event.target.open) },
      make("summary", { class: "soft" }, "Configuration and command to copy"),
      make(
        "div",
        { class: "columns" },
        rows.map((row) =>
          make(
            "div",
            {},
            make("p", {}, badge(row.number), " ", labelOf(row)),
            copied("command", commandsOf(row).join("\n")),
            copied("TOML", tomlOf(row)),
          ),
        ),
      ),
    ),
  );
}

/** A text that a click selects as a whole; a line breaks before a flag, not within. */
const copied = (name, text) =>
  make(
    "div",
    {},
    make("h4", {}, name),
    make(
      "pre",
      { class: name.toLowerCase(), tabindex: "0", "aria-label": name },
      text.split(/(?<= )(?=--)/).map((part) => make("span", {}, part)),
    ),
  );

const exactly = (column, row, value) =>
  (column.unit === "B" && isNumber(value) && column.group === "metrics" ? `${whole(value)} B` : told(column, row)) ||
  "\u2013";

/** Stacked bars of cycles per kind of layer: one per point and network, and weighted together. */
function kindBars(rows) {
  const { networks } = data.header;
  const several = networks.length > 1;
  const kinds = Object.keys(data.kinds).filter((kind) => rows.some((row) => row.costs.some((cost) => cost.kinds[kind])));
  const group = (title, cyclesOf, boundOf) => {
    const most = Math.max(...rows.map((row) => Math.max(cyclesOf(row), boundOf(row))));
    return [
      several ? make("h4", {}, title) : "",
      ...rows.map((row) => {
        const total = cyclesOf(row);
        const parts = kinds.map((kind) => {
          const value = cyclesOf(row, kind);
          return {
            name: kind,
            value,
            colour: colourOfKind(kind),
            more: `${short(value, 4)} cycles, ${percent(value / total)}`,
          };
        });
        return barLine(row.number, stack(parts, most, boundOf(row)), total);
      }),
    ];
  };
  const pick = (cost, kind) => (kind === undefined ? cost.cycles : (cost.kinds[kind] ?? 0));
  const weighted = (row, get) => row.costs.reduce((sum, cost, n) => sum + networks[n].weight * get(cost), 0);
  const groups = networks.map(({ source }, n) =>
    group(
      source,
      (row, kind) => pick(row.costs[n], kind),
      (row) => row.costs[n].bound,
    ),
  );
  const all = group(
    "all networks, by weight",
    (row, kind) => weighted(row, (cost) => pick(cost, kind)),
    (row) => weighted(row, (cost) => cost.bound),
  );
  const legend = [...kinds.map((kind) => [kind, colourOfKind(kind)]), ["roofline bound"]];
  const title = data.header.systems ? "Cycles by what accelerators do" : "Cycles per kind of layer";
  return barsOf("kind-bars", title, legend, several ? all : "", groups);
}

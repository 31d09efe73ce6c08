// The table: all rows, of which only those in view are in the document.

const ROW_HEIGHT = 28;
const table = { box: null, body: null, head: null, active: 0, shownColumns: [], signature: "" };

function buildTable() {
  table.head = make("thead");
  table.body = make("tbody");
  const grid = make(
    "table",
    { id: "points", role: "grid", "aria-label": "points", tabindex: "0", onkeydown: tableKey },
    table.head,
    table.body,
  );
  table.box = make("div", { class: "scroll", onscroll: perFrame(drawBody) }, grid);
  table.body.addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-number]");
    if (!line || String(getSelection()).length) return;
    table.active = Number(line.dataset.index);
    toggle(Number(line.dataset.number));
  });
  table.body.addEventListener("mouseover", (event) => hover(numberAt(event.target)));
  table.body.addEventListener("mouseleave", () => hover(null));
  on("rows", () => {
    table.active = Math.min(table.active, Math.max(0, state.visible.length - 1));
    drawTable();
  });
  on("selection", drawBody);
  on("hover", () => {
    for (const line of table.body.rows) line.classList.toggle("hovered", line.dataset.number === String(state.hovered));
  });
  new ResizeObserver(perFrame(drawBody)).observe(table.box);
  const notes = make("div", { class: "soft note", id: "notes" });
  on("states", () => notes.replaceChildren(...data.notes.map((text) => make("p", {}, text))));
  return make("section", { class: "card", "aria-labelledby": "points-title" }, tableTools(), table.box, notes);
}

const numberAt = (target) => {
  const number = target.closest("tr[data-number]")?.dataset.number;
  return number === undefined ? null : Number(number);
};

function tableTools() {
  const count = make("span", { id: "count", class: "soft" });
  const brushed = button("", dropBrush, { id: "brushed", class: "small chip", hidden: true });
  const clear = button("Clear filters", clearFilters, { id: "clear" });
  const chooser = make(
    "details",
    { class: "menu", id: "chooser" },
    make("summary", { class: "small" }, "Columns"),
    make("div", { class: "panel" }),
  );
  chooser.addEventListener("toggle", () => chooser.open && drawChooser(chooser.lastElementChild));
  document.addEventListener("click", (event) => chooser.contains(event.target) || (chooser.open = false));
  chooser.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    chooser.open = false;
    chooser.firstElementChild.focus();
  });
  on("rows", () => {
    const filtered = state.visible.length !== data.rows.length;
    count.textContent = filtered
      ? `${whole(state.visible.length)} of ${whole(data.rows.length)}`
      : plural(data.rows.length, "point");
    clear.disabled = !state.filters.size && !state.brush;
    brushed.hidden = !state.brush;
    if (state.brush) {
      const [x, y] = [data.byKey.get(state.brush.x), data.byKey.get(state.brush.y)];
      brushed.textContent = `${x.title} and ${y.title} as drawn in the chart \u2715`;
    }
  });
  return make(
    "div",
    { class: "tools" },
    make("h2", { id: "points-title" }, "Points"),
    count,
    brushed,
    make("span", { class: "grow" }),
    clear,
    chooser,
    button("Download CSV", () => download("results.csv", "text/csv", csvText()), { id: "csv" }),
  );
}

/** The columns that stand in the table. */
function columnsShown() {
  if (state.columns) return data.columns.filter(({ key }) => state.columns.has(key));
  const failed = data.rows.some((row) => !row.costs.length);
  return data.columns.filter((column) => {
    if (column.key === "number") return true;
    if (column.key === "state") return !column.same || failed;
    if (column.key === "confirmed") return data.rows.some((row) => row.confirmed);
    if (column.objective) return true;
    if (column.group === "parameters") return (column.axis || column.metric) && !column.same;
    if (column.group === "estimates") return column.key === "part" && !column.same;
    if (column.key.includes(".")) return false; // of one network: those that are objectives stand there
    return column.group === "metrics" && !column.same && column.distinct.length > 0;
  });
}

function drawTable() {
  table.shownColumns = columnsShown();
  // The height that all rows need, also while a filter hides some.
  table.box.style.setProperty("--all", `${(data.rows.length + 4) * ROW_HEIGHT}px`);
  const signature = table.shownColumns.map(({ key }) => key).join();
  if (signature !== table.signature) drawHead();
  table.signature = signature;
  for (const cell of table.head.rows[0].cells) {
    const sorted = cell.dataset.key === state.sort.key;
    cell.setAttribute("aria-sort", sorted ? (state.sort.descending ? "descending" : "ascending") : "none");
  }
  for (const input of table.head.querySelectorAll("input")) {
    const why = state.bad.get(input.dataset.key);
    if (document.activeElement !== input) input.value = state.filters.get(input.dataset.key) ?? "";
    input.toggleAttribute("aria-invalid", Boolean(why));
    input.title = why ?? hintOf(data.byKey.get(input.dataset.key));
  }
  drawBody();
}

const hintOf = (column) =>
  column.numeric ? "such as >= 128, 64..256, 64, 128, > 1M < 3M" : "such as native, !none, =front";

function drawHead() {
  const titles = table.shownColumns.map((column) =>
    make(
      "th",
      { scope: "col", "data-key": column.key, class: column.numeric ? "number" : null },
      button(column.label, () => sortBy(column.key), { class: null, title: column.doc }),
    ),
  );
  const filters = table.shownColumns.map((column) =>
    td(
      make("input", {
        type: "text",
        "data-key": column.key,
        "aria-label": `filter ${column.title}`,
        spellcheck: "false",
        autocomplete: "off",
        placeholder: "filter",
        oninput: (event) => setFilter(column.key, event.target.value),
      }),
    ),
  );
  table.head.replaceChildren(make("tr", {}, ...titles), make("tr", { class: "filters" }, ...filters));
}

/** The rows in view, and some above and below. */
function range(count) {
  const { scrollTop, clientHeight } = table.box;
  const top = Math.min(scrollTop, Math.max(0, count * ROW_HEIGHT - clientHeight)); // after a filter it is past the end
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - 10);
  return [first, Math.min(count, first + Math.ceil(clientHeight / ROW_HEIGHT) + 20)];
}

function drawBody() {
  const rows = state.visible;
  const [first, last] = range(rows.length);
  const lines = [];
  for (let index = first; index < last; index++) lines.push(lineOf(rows[index], index));
  const spacer = (count) => count > 0 && make("tr", { class: "spacer", css: { height: `${count * ROW_HEIGHT}px` } });
  const note = (text) => make("tr", {}, make("td", { class: "empty", colspan: table.shownColumns.length }, text));
  const empty =
    !rows.length && note(data.rows.length ? "No point passes these filters." : "No point has been priced yet.");
  table.body.replaceChildren(...[spacer(first), ...lines, spacer(rows.length - last), empty].filter(Boolean));
  byId("points").setAttribute("aria-rowcount", rows.length + 2);
  byId("points").setAttribute("aria-activedescendant", rows.length ? `row-${table.active}` : "");
}

function lineOf(row, index) {
  const failed = !row.costs.length;
  const cells = [];
  for (const column of table.shownColumns) {
    if (failed && column.group === "metrics") {
      if (cells.at(-1)?.classList.contains("reason")) cells.at(-1).colSpan += 1;
      else cells.push(make("td", { class: "reason", title: row.error }, row.error));
    } else cells.push(cellOf(row, column));
  }
  return make(
    "tr",
    {
      id: `row-${index}`,
      "data-number": row.number,
      "data-index": index,
      "aria-rowindex": index + 3,
      "aria-selected": String(state.selected.includes(row.number)),
      class: [
        !failed && !row.competes && "aside",
        index === table.active && "active",
        row.number === state.hovered && "hovered",
      ]
        .filter(Boolean)
        .join(" "),
    },
    ...cells,
  );
}

function cellOf(row, column) {
  const value = row.values[column.key];
  if (column.key === "number") {
    const mark = state.selected.includes(row.number) ? badge(row.number) : "";
    return make("td", { class: "number mark" }, mark, value);
  }
  if (column.key === "state") return td(make("span", { class: `state ${value}` }, value));
  if (column.key === "confirmed") return make("td", { class: `verdict ${value}` }, value);
  return make(
    "td",
    {
      class: column.numeric ? "number" : null,
      title: row.unsure.has(column.key)
        ? `${value}: error not known: ${row.outside}`
        : typeof value === "number"
          ? String(value)
          : null,
    },
    told(column, row),
  );
}

function tableKey(event) {
  if (event.target.tagName === "INPUT" || event.target.tagName === "BUTTON") return;
  const page = Math.max(1, Math.floor(table.box.clientHeight / ROW_HEIGHT) - 3);
  const last = state.visible.length - 1;
  const to = {
    ArrowDown: table.active + 1,
    ArrowUp: table.active - 1,
    PageDown: table.active + page,
    PageUp: table.active - page,
    Home: 0,
    End: last,
  }[event.key];
  if (to !== undefined) goTo(Math.max(0, Math.min(last, to)));
  else if ((event.key === "Enter" || event.key === " ") && state.visible[table.active])
    toggle(state.visible[table.active].number);
  else if (event.key === "Escape") setSelected([]);
  else return;
  event.preventDefault();
}

/** Makes a row the one that keys act on, and brings it into view. */
function goTo(index) {
  table.active = index;
  const top = index * ROW_HEIGHT;
  const room = table.box.clientHeight - table.head.offsetHeight - ROW_HEIGHT;
  if (top < table.box.scrollTop) table.box.scrollTop = top;
  else if (top > table.box.scrollTop + room) table.box.scrollTop = top - room;
  drawBody();
}

/** Brings a point's row into view, where it passes the filters. */
function reveal(number) {
  const index = state.visible.findIndex((row) => row.number === number);
  if (index >= 0) goTo(index);
}

function drawChooser(panel) {
  const now = new Set(table.shownColumns.map(({ key }) => key));
  const groups = Map.groupBy(data.columns, ({ group }) => group);
  const box = (column) =>
    make(
      "label",
      { title: column.doc },
      make("input", { type: "checkbox", value: column.key, checked: now.has(column.key), onchange: choose }),
      column.title,
    );
  const choose = () => {
    state.columns = new Set([...panel.querySelectorAll("input:checked")].map(({ value }) => value));
    drawTable();
  };
  const usual = () => {
    state.columns = null;
    drawTable();
    drawChooser(panel);
  };
  panel.replaceChildren(
    ...[...groups].map(([name, columns]) => make("fieldset", {}, make("legend", {}, name), ...columns.map(box))),
    button("The usual columns", usual),
  );
}

/** The rows that pass the filters, in their order, with all columns. */
function csvText() {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [data.columns.map(({ key }) => cell(key.replaceAll(" ", "_")))];
  for (const row of state.visible) lines.push(data.columns.map(({ key }) => cell(row.values[key])));
  return `${lines.map((line) => line.join(",")).join("\n")}\n`;
}

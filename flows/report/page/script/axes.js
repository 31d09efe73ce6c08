// The chart's axes and what they and the colour show.

const numericColumns = () => data.columns.filter((column) => column.numeric && column.key !== "number");

/** As the reader has chosen; else the first two objectives, and the first axis that tells most by its colour. */
function chooseAxes() {
  const { chosen } = scatter;
  const columns = numericColumns();
  const usable = (key) => columns.some((column) => column.key === key);
  const varied = columns.filter((column) => !column.same).map(({ key }) => key);
  const usual = [...data.header.objectives, "cycles", "pe", "sram"].filter(usable);
  const wanted = [...usual.filter((key) => varied.includes(key)), ...varied, ...usual];
  scatter.x = usable(chosen.x) ? chosen.x : (wanted[0] ?? null);
  scatter.y = usable(chosen.y) ? chosen.y : (wanted.find((key) => key !== scatter.x) ?? scatter.x);
  const taken = [scatter.x, scatter.y];
  const axes = data.columns.filter((column) => column.axis && !column.same && !taken.includes(column.key));
  const axis =
    axes.find(({ key }) => key === data.telling) ?? axes.find((column) => column.distinct.length <= 8) ?? axes[0];
  scatter.colour = data.byKey.has(chosen.colour) ? chosen.colour : (axis?.key ?? "state");
}

/** The reader's choice of what is shown along x or y, or by colour. */
function choose(which, key) {
  scatter.chosen[which] = key;
  scatter.log[which] = null;
  chooseAxes();
  if (which !== "colour") dropBrush();
}

function drawControls() {
  const groups = (columns, chosen) => {
    const byGroup = Map.groupBy(columns, ({ group }) => group);
    return [...byGroup].map(([label, members]) =>
      make(
        "optgroup",
        { label },
        members.map(({ key, title }) => option(key, title, chosen)),
      ),
    );
  };
  const choice = (which, columns) =>
    menu(which, which, groups(columns, scatter[which]), (key) => {
      choose(which, key);
      drawControls();
      drawScatter();
    });
  const check = (id, label, checked, change) =>
    make(
      "label",
      {},
      make("input", {
        type: "checkbox",
        id,
        checked,
        onchange: (event) => {
          change(event.target.checked);
          drawScatter();
        },
      }),
      label,
    );
  const columns = numericColumns();
  const shade = data.columns.filter((column) => !column.same && !["number", "error"].includes(column.key));
  const signature = JSON.stringify([
    columns.map(({ key }) => key),
    shade.map(({ key }) => key),
    scatter.x,
    scatter.y,
    scatter.colour,
    ["x", "y"].map(isLog),
  ]);

  if (signature === scatter.signature) return;
  scatter.signature = signature;
  const focused = document.activeElement?.id;
  const title = make("h2", { id: "chart-title" }, "Trade-offs");
  if (!columns.length) return scatter.controls.replaceChildren(title);
  scatter.controls.replaceChildren(
    title,
    make(
      "span",
      { class: "pair" },
      choice("x", columns),
      check("log-x", "log", isLog("x"), (log) => (scatter.log.x = log)),
    ),
    make(
      "span",
      { class: "pair" },
      choice("y", columns),
      check("log-y", "log", isLog("y"), (log) => (scatter.log.y = log)),
    ),
    choice("colour", shade),
    make("span", { class: "grow" }),
    check("zoom", "fit to filter", scatter.zoom, (zoom) => (scatter.zoom = zoom)),
  );
  if (focused) byId(focused)?.focus();
}

function dropBrush() {
  if (!state.brush) return;
  state.brush = null;
  refresh();
}

/** Whether an axis is logarithmic: as chosen, else where its values span more than a factor of 12. */
function isLog(which) {
  if (scatter.log[which] !== null) return scatter.log[which];
  const [low, high] = extent(data.rows, scatter[which]);
  return low > 0 && high / low > 12;
}

function extent(rows, key) {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of rows) {
    const value = values[key];
    if (!isNumber(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** An axis that shows some rows. */
function axisOf(which, rows) {
  const key = scatter[which];
  const { unit, heading: title } = data.byKey.get(key);
  const log = isLog(which);
  let [low, high] = extent(log ? rows.filter(({ values }) => values[key] > 0) : rows, key);
  if (low > high) [low, high] = [1, 10];
  if (log) {
    const room = Math.max((high / low) ** 0.05, 1.03);
    return { low: low / room, high: high * room, log, unit, title };
  }
  const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return { low: low >= 0 && low < room * 6 ? 0 : low - room, high: high + room, log, unit, title };
}

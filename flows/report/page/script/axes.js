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

function axisScale(which, rows, from, to) {
  const key = scatter[which];
  const log = isLog(which);
  let [low, high] = extent(log ? rows.filter(({ values }) => values[key] > 0) : rows, key);
  if (low > high) [low, high] = [1, 10];
  if (log) {
    const room = Math.max((high / low) ** 0.05, 1.03);
    return scaleOf(low / room, high * room, from, to, true);
  }
  const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return scaleOf(low >= 0 && low < room * 6 ? 0 : low - room, high + room, from, to);
}

function drawAxes(pen, x, y, ink) {
  const { width, height } = scatter;
  const [columnX, columnY] = [data.byKey.get(scatter.x), data.byKey.get(scatter.y)];
  const ticksOf = (scale, column, which, count) => {
    const [low, high] = which === "x" ? [MARGIN.left, width - MARGIN.right] : [height - MARGIN.bottom, MARGIN.top];
    if (isLog(which) && column.unit === "B") return doublings(scale.invert(low), scale.invert(high), count);
    return scale.ticks(count);
  };
  pen.lineWidth = 1;
  pen.strokeStyle = ink.grid;
  pen.fillStyle = ink.soft;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const tick of ticksOf(x, columnX, "x", Math.max(3, Math.floor(width / 90)))) {
    const at = Math.round(x(tick)) + 0.5;
    line(pen, at, MARGIN.top, at, height - MARGIN.bottom);
    pen.fillText(tickOf(columnX, tick), at, height - MARGIN.bottom + 7);
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of ticksOf(y, columnY, "y", Math.max(3, Math.floor(height / 45)))) {
    const at = Math.round(y(tick)) + 0.5;
    line(pen, MARGIN.left, at, width - MARGIN.right, at);
    pen.fillText(tickOf(columnY, tick), MARGIN.left - 8, at);
  }
  pen.fillStyle = ink.text;
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  pen.fillText(axisTitle(columnX), (MARGIN.left + width - MARGIN.right) / 2, height - 8);
  pen.save();
  pen.translate(14, (MARGIN.top + height - MARGIN.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(axisTitle(columnY), 0, 0);
  pen.restore();
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

const axisTitle = ({ label, metric, more }) => (metric ? `${label} (${more ? "more" : "less"} is better)` : label);

// The chart of all points: any column against any other, coloured by a third. Linked with the table both ways.

const scatter = {
  x: null,
  y: null,
  colour: null,
  chosen: {}, // by the reader: x, y, colour
  log: { x: null, y: null },
  zoom: false,
  canvas: null,
  frame: null, // the axes, behind the canvas
  places: [],
  scales: null,
  drag: null,
  width: 0,
  height: 0,
  controls: null,
  legend: null,
};

function buildScatter() {
  scatter.canvas = make("canvas", {
    id: "scatter",
    tabindex: "0",
    role: "application",
    "aria-label":
      "chart of the points; arrow keys go from point to point, Enter selects, Escape clears the drawn filter",
    onpointerdown: press,
    onpointermove: move,
    onpointerup: release,
    onpointerleave: leave,
    onkeydown: scatterKey,
  });
  scatter.frame = draw("svg", { class: "frame", "aria-hidden": "true" });
  scatter.controls = make("div", { class: "tools" });
  scatter.legend = make("div", { class: "legend", id: "scatter-legend" });
  on("rows", () => {
    chooseAxes();
    drawControls();
    drawScatter();
  });
  on("selection", drawScatter);
  on("hover", drawScatter);
  const holder = make("div", { class: "chart" }, scatter.frame, scatter.canvas);
  new ResizeObserver(drawScatter).observe(holder);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintScatter); // at once: paper is light
  const note = make("p", { class: "soft note" }, "Click selects a point, dragging a rectangle filters the table.");
  return make(
    "section",
    { class: "card", id: "chart", "aria-labelledby": "chart-title" },
    scatter.controls,
    holder,
    scatter.legend,
    note,
  );
}

function paintScatter() {
  const { canvas } = scatter;
  const holder = canvas.parentElement;
  const [width, height] = [holder.clientWidth, holder.clientHeight];
  if (!width || !data.header) return;
  const sharp = devicePixelRatio || 1;
  Object.assign(canvas, { width: width * sharp, height: height * sharp });
  Object.assign(scatter, { width, height });
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const ink = {
    text: colourOf("--text"),
    soft: colourOf("--soft"),
    grid: colourOf("--grid"),
    card: colourOf("--card"),
    faint: colourOf("--faint"),
    front: colourOf("--front"),
  };
  const priced = data.rows.filter((row) => row.costs.length);
  if (!scatter.x || !scatter.y || !priced.length) {
    pen.fillStyle = ink.soft;
    pen.textAlign = "center";
    pen.fillText(
      data.rows.length ? "No point could be priced: see the reasons below." : "No point has been priced yet.",
      width / 2,
      height / 2,
    );
    scatter.places = [];
    scatter.scales = null;
    scatter.legend.replaceChildren();
    scatter.frame.replaceChildren();
    return;
  }
  const base =
    scatter.zoom && state.visible.some((row) => row.costs.length)
      ? state.visible.filter((row) => row.costs.length)
      : priced;
  const axes = { x: axisOf("x", base), y: axisOf("y", base) };
  scatter.scales = scalesOf(axes, width, height);
  scatter.frame.replaceChildren(draw("g", {}, frameOf(axes, scatter.scales, width, height)));
  const { x, y } = scatter.scales;
  pen.save();
  pen.beginPath();
  pen.rect(
    MARGIN.left,
    MARGIN.top - 8,
    width - MARGIN.left - MARGIN.right + 12,
    height - MARGIN.top - MARGIN.bottom + 8,
  );
  pen.clip();
  placePoints(priced, x, y);
  drawPoints(pen, ink, priced.length);
  pen.restore();
  drawBrush(pen, x, y, ink);
  drawSelected(pen, ink);
}

const drawScatter = perFrame(paintScatter);

function placePoints(rows, x, y) {
  const logs = [isLog("x"), isLog("y")];
  scatter.places = [];
  for (const row of rows) {
    const [valueX, valueY] = [row.values[scatter.x], row.values[scatter.y]];
    if (!isNumber(valueX) || !isNumber(valueY) || (logs[0] && valueX <= 0) || (logs[1] && valueY <= 0)) continue;
    scatter.places.push({ row, x: x(valueX), y: y(valueY) });
  }
}

function drawPoints(pen, ink, all) {
  const { places } = scatter;
  const radius = places.length > 3000 ? 2.2 : places.length > 400 ? 3.2 : 5;
  const shade = shades();
  const passing = places.filter(({ row }) => state.passing.has(row.number));
  const unsure = ({ unsure }) => unsure.has(scatter.x) || unsure.has(scatter.y);
  const dot = (place, size) => {
    pen.beginPath();
    if (unsure(place.row)) pen.rect(place.x - 0.9 * size, place.y - 0.9 * size, 1.8 * size, 1.8 * size);
    else pen.arc(place.x, place.y, size, 0, 2 * Math.PI);
  };
  pen.fillStyle = ink.grid;
  for (const place of places) {
    if (state.passing.has(place.row.number)) continue;
    dot(place, radius * 0.8);
    pen.fill();
  }
  const line = frontOf(passing);
  drawLine(pen, line, ink);
  pen.globalAlpha = places.length > 3000 ? 0.75 : 0.9;
  for (const place of passing) {
    if (place.row.front) continue;
    dot(place, radius);
    pen.strokeStyle = pen.fillStyle = shade.of(place.row);
    if (place.row.competes) pen.fill();
    else pen.stroke();
  }
  pen.globalAlpha = 1;
  for (const place of passing) {
    if (!place.row.front) continue;
    dot(place, radius + 1.5);
    pen.fillStyle = shade.of(place.row);
    pen.fill();
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink.text;
    pen.stroke();
    pen.lineWidth = 1;
  }
  drawLegend(shade, passing, line.length > 1, all - places.length);
}

/** The points that are best in the two shown columns, in the order of x. */
function frontOf(places) {
  const [x, y] = [data.byKey.get(scatter.x), data.byKey.get(scatter.y)];
  if (!x.metric || !y.metric) return [];
  const [signX, signY] = [x.more ? -1 : 1, y.more ? -1 : 1];
  const cost = ({ row }) => [signX * row.values[x.key], signY * row.values[y.key]];
  const sorted = places
    .filter(({ row }) => row.competes)
    .sort((a, b) => cost(a)[0] - cost(b)[0] || cost(a)[1] - cost(b)[1]);
  const front = [];
  let best = Infinity;
  for (const place of sorted) {
    if (cost(place)[1] >= best) continue;
    best = cost(place)[1];
    front.push(place);
  }
  return front;
}

/** Stairs: between two points of a front nothing better is known. */
function drawLine(pen, front, ink) {
  if (front.length < 2) return;
  pen.beginPath();
  pen.moveTo(front[0].x, front[0].y);
  for (const [n, place] of front.slice(1).entries()) {
    pen.lineTo(place.x, front[n].y);
    pen.lineTo(place.x, place.y);
  }
  pen.strokeStyle = ink.front;
  pen.lineWidth = 2;
  pen.stroke();
  pen.lineWidth = 1;
}

/** Colours of the chosen column: few values get one each, many numbers the ramp. */
function shades() {
  const column = data.byKey.get(scatter.colour);
  const { distinct, numeric } = column;
  const { series } = data.header.colours;
  if (distinct.length <= 8 || !numeric) {
    const named =
      column.key === "state"
        ? { front: "#4477AA", feasible: "#66CCEE", "on host": "#CCBB44", infeasible: "#999999" }
        : {};
    const colour = (value) => {
      const at = distinct.indexOf(value);
      return (
        named[value] ??
        (numeric && distinct.length > 2 ? rampColour(at / (distinct.length - 1)) : series[at % series.length])
      );
    };
    return {
      column,
      entries: distinct.filter((value) => value !== "failed").map((value) => [value, colour(value)]),
      of: (row) => colour(row.values[column.key]),
    };
  }
  const [low, high] = extent(data.rows, column.key);
  const log = low > 0 && high / low > 12;
  const part = scaleOf(low, high, 0, 1, log);
  return {
    column,
    low,
    high,
    of: (row) => (isNumber(row.values[column.key]) ? rampColour(part(row.values[column.key])) : "#999"),
  };
}

function drawLegend(shade, passing, line, missing) {
  const swatch = (colour, extra = "") => make("i", { class: `swatch ${extra}`, css: { background: colour } });
  const parts = [make("b", {}, shade.column.title)];
  if (shade.entries) {
    for (const [value, colour] of shade.entries.slice(0, 16))
      parts.push(make("span", {}, swatch(colour), shown(shade.column, value) || "none"));
    if (shade.entries.length > 16) parts.push(make("span", {}, `and ${shade.entries.length - 16} more`));
  } else {
    const stops = Array.from({ length: 9 }, (_, n) => rampColour(n / 8)).join(", ");
    parts.push(
      make(
        "span",
        {},
        tickOf(shade.column, shade.low),
        make("i", { class: "ramp", css: { background: `linear-gradient(90deg, ${stops})` } }),
        tickOf(shade.column, shade.high),
      ),
    );
  }
  const marks = [];
  if (passing.some(({ row }) => row.front))
    marks.push(
      make(
        "span",
        {},
        make("i", { class: "swatch ring" }),
        `front of ${data.header.objectives.map(titleOf).join(", ")}`,
      ),
    );
  if (line) marks.push(make("span", {}, make("i", { class: "swatch line" }), "best of these two"));
  if (passing.some(({ row }) => row.unsure.has(scatter.x) || row.unsure.has(scatter.y)))
    marks.push(make("span", {}, make("i", { class: "swatch box" }), "estimate outside of what was measured"));
  if (passing.some(({ row }) => !row.competes))
    marks.push(make("span", {}, make("i", { class: "swatch hollow" }), "infeasible, or more left to the host"));
  if (missing) marks.push(make("span", {}, `${plural(missing, "point")} without a place on these axes`));
  scatter.legend.replaceChildren(make("div", {}, ...parts), make("div", {}, ...marks));
}

function drawBrush(pen, x, y, ink) {
  const { drag } = scatter;
  const fits = state.brush && state.brush.x === scatter.x && state.brush.y === scatter.y;
  if (!drag?.moved && !fits) return;
  const corners = drag?.moved
    ? [drag.x, drag.y, drag.toX, drag.toY]
    : [
        x(clampLog("x", state.brush.low[0])),
        y(clampLog("y", state.brush.low[1])),
        x(state.brush.high[0]),
        y(state.brush.high[1]),
      ];
  const [left, top] = [Math.min(corners[0], corners[2]), Math.min(corners[1], corners[3])];
  pen.globalAlpha = 0.1;
  pen.fillStyle = ink.text;
  pen.fillRect(left, top, Math.abs(corners[2] - corners[0]), Math.abs(corners[3] - corners[1]));
  pen.globalAlpha = 1;
  pen.setLineDash([4, 3]);
  pen.strokeStyle = ink.soft;
  pen.strokeRect(left, top, Math.abs(corners[2] - corners[0]), Math.abs(corners[3] - corners[1]));
  pen.setLineDash([]);
}

const clampLog = (which, value) => (isLog(which) ? Math.max(value, Number.MIN_VALUE) : value);

function drawSelected(pen, ink) {
  const hovered = scatter.places.find(({ row }) => row.number === state.hovered);
  if (hovered) {
    pen.beginPath();
    pen.arc(hovered.x, hovered.y, 8, 0, 2 * Math.PI);
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.stroke();
  }
  for (const place of scatter.places) {
    const letter = letterOf(place.row.number);
    if (!letter) continue;
    pen.beginPath();
    pen.arc(place.x, place.y, 10, 0, 2 * Math.PI);
    pen.fillStyle = markOf(place.row.number);
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = ink.card;
    pen.stroke();
    pen.fillStyle = "#fff";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(letter, place.x, place.y + 0.5);
  }
}

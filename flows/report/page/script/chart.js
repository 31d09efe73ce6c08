// Draws what Python specifies (flows/report/charts): axes, lines and dots of a panel. An axis is {low, high, log, unit, title}.

const MARGIN = { left: 68, right: 18, top: 14, bottom: 46 };
const ROOFLINE = { width: 760, height: 360 };

/** From values to places within a width and height. */
const scalesOf = ({ x, y }, width, height) => ({
  x: scaleOf(x.low, x.high, MARGIN.left, width - MARGIN.right, x.log),
  y: scaleOf(y.low, y.high, height - MARGIN.bottom, MARGIN.top, y.log),
});

/** Grid, figures and titles of both axes. */
function frameOf({ x, y }, scales, width, height) {
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const ticks = ({ low, high, log, unit }, scale, count) =>
    log && unit === "B" ? doublings(low, high, count) : scale.ticks(count);
  const grid = (x1, x2, y1, y2) => draw("line", { class: "grid", x1, x2, y1, y2 });
  const text = (kind, x, y, anchor, shown, transform = null) =>
    draw("text", { class: kind, x, y, "text-anchor": anchor, transform }, shown);
  const told = (axis, found) => ticksOf(axis, found).map((shown, n) => [found[n], shown]);
  const across = told(x, ticks(x, scales.x, Math.max(3, Math.floor(width / 90)))).map(([tick, shown]) => [
    grid(scales.x(tick), scales.x(tick), top, bottom),
    text("tick", scales.x(tick), bottom + 17, "middle", shown),
  ]);
  const up = told(y, ticks(y, scales.y, Math.max(3, Math.floor(height / 45)))).map(([tick, shown]) => [
    grid(left, right, scales.y(tick), scales.y(tick)),
    text("tick", left - 8, scales.y(tick) + 4, "end", shown),
  ]);
  const middle = (top + bottom) / 2;
  return [
    across,
    up,
    text("label", (left + right) / 2, height - 8, "middle", x.title),
    text("label", 14, middle, "middle", y.title, `rotate(-90 14 ${middle})`),
  ];
}

/** The axis of several panels: it shows what each of them shows. */
const joined = (axes) => ({
  ...axes[0],
  low: Math.min(...axes.map(({ low }) => low)),
  high: Math.max(...axes.map(({ high }) => high)),
});

/** The rooflines of the selected points in one plot. */
function roofline(found) {
  const panels = found.map(({ number, explanation: { roofline } }) => ({ number, ...roofline }));
  const marks = (kind) =>
    panels.flatMap(({ number, marks }) =>
      marks.filter((mark) => mark.kind === kind).map((mark, place) => ({ number, place, ...mark })),
    );
  const several = panels.length > 1;
  const plot = { x: joined(panels.map(({ x }) => x)), y: joined(panels.map(({ y }) => y)) };
  const { width, height } = ROOFLINE;
  const scales = scalesOf(plot, width, height);
  const dots = marks("Dots").flatMap(({ number, points, colours, areas, tips }) =>
    points.map(([x, y], n) => ({ number, x: x ?? plot.x.high, y, colour: colours[n], area: areas[n], tip: tips[n] })),
  );
  if (!dots.length) return null;
  const inside = [MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  const lines = draw(
    "svg", // it clips them
    { x: inside[0], y: inside[1], width: inside[2], height: inside[3], viewBox: inside.join(" ") },
    marks("Line").map(({ number, place, points, tip }) =>
      draw("polyline", {
        class: place ? "roof dashed" : "roof",
        points: points.map(([x, y]) => `${scales.x(x).toFixed(1)},${scales.y(y).toFixed(1)}`).join(" "),
        css: { stroke: markOf(number) },
        "data-tip": tip,
      }),
    ),
  );
  const circles = dots
    .sort((a, b) => b.area - a.area)
    .map(({ number, x, y, colour, area, tip }) =>
      draw("circle", {
        cx: scales.x(x).toFixed(1),
        cy: scales.y(y).toFixed(1),
        r: (1.5 + 0.7 * Math.sqrt(area)).toFixed(1),
        "data-tip": several ? `${letterOf(number)} ${tip}` : tip,
        class: "dot",
        css: { fill: colour, stroke: several ? markOf(number) : "var(--card)" },
      }),
    );
  const about = { role: "img", "aria-label": "roofline: MACs per cycle over MACs per byte" };
  return make(
    "div",
    { class: "wide" },
    make("h3", {}, "Roofline"),
    make(
      "p",
      { class: "soft" },
      "A dot per layer; its area is its share of the cycles. A layer below its roof waits for something else than ",
      "multipliers or bus. Layers that move nothing stand at the right edge. The dashed roof is that of depthwise layers.",
    ),
    legendOf([...new Map(panels.flatMap(({ legend }) => legend)).entries()]),
    draw(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, class: "roofline frame", id: "roofline", ...about },
      frameOf(plot, scales, width, height),
      lines,
      circles,
    ),
  );
}

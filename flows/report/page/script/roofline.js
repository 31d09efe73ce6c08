// The roofline of the selected points: what layers attain against what multipliers and bus allow.

const ROOF = { width: 760, height: 360, left: 62, right: 16, top: 14, bottom: 44 };

function roofline(found) {
  const dots = found.flatMap(({ number, explanation }) =>
    explanation.layers
      .filter(({ macs, cycles }) => macs && cycles)
      .map((layer) => ({ number, layer, share: layer.cycles / explanation.cycles })),
  );
  if (!dots.length) return null;
  const known = dots.map(({ layer }) => layer.intensity).filter((value) => value > 0);
  const ridges = found.map(({ explanation }) => explanation.peak / explanation.bandwidth);
  const [low, high] = [Math.min(...known, ...ridges) / 1.6, Math.max(...known, ...ridges) * 2];
  const bottom = Math.min(...dots.map(({ layer }) => layer.attained)) / 1.5;
  const top = Math.max(...found.map(({ explanation }) => explanation.peak)) * 1.4;
  const x = scaleOf(low, high, ROOF.left, ROOF.width - ROOF.right, true);
  const y = scaleOf(bottom, top, ROOF.height - ROOF.bottom, ROOF.top, true);
  const kinds = stackOrder([...new Set(dots.map(({ layer }) => layer.kind))]);
  const plot = draw(
    "svg",
    {
      viewBox: `0 0 ${ROOF.width} ${ROOF.height}`,
      class: "roofline",
      id: "roofline",
      role: "img",
      "aria-label": "roofline: MACs per cycle over MACs per byte",
    },
    roofAxes(x, y),
    found.map((each) => roof(each, x, y, low, high)),
    dots.sort((a, b) => b.share - a.share).map((dot) => roofDot(dot, x, y, high, found.length > 1)),
  );
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
    legendOf(kinds.map((kind) => [kind, colourOfKind(kind)])),
    plot,
  );
}

function roofAxes(x, y) {
  const parts = [];
  for (const tick of x.ticks(9)) {
    parts.push(draw("line", { class: "grid", x1: x(tick), x2: x(tick), y1: ROOF.top, y2: ROOF.height - ROOF.bottom }));
    parts.push(
      draw(
        "text",
        { class: "tick", x: x(tick), y: ROOF.height - ROOF.bottom + 16, "text-anchor": "middle" },
        short(tick),
      ),
    );
  }
  for (const tick of y.ticks(8)) {
    parts.push(draw("line", { class: "grid", x1: ROOF.left, x2: ROOF.width - ROOF.right, y1: y(tick), y2: y(tick) }));
    parts.push(draw("text", { class: "tick", x: ROOF.left - 7, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  const middle = (ROOF.top + ROOF.height - ROOF.bottom) / 2;
  parts.push(
    draw(
      "text",
      { class: "label", x: (ROOF.left + ROOF.width - ROOF.right) / 2, y: ROOF.height - 6, "text-anchor": "middle" },
      "MACs per byte on the bus",
    ),
  );
  parts.push(
    draw(
      "text",
      { class: "label", x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` },
      "MACs per cycle",
    ),
  );
  return parts;
}

function roof({ number, explanation: { peak, depthwise_peak: depthwise, bandwidth } }, x, y, low, high) {
  const floor = y.invert(ROOF.height - ROOF.bottom);
  const start = Math.max(low, floor / bandwidth);
  const points = [
    [start, Math.min(peak, start * bandwidth)],
    [Math.max(start, peak / bandwidth), peak],
    [high, peak],
  ];
  const lineOf = (corners, dashed) =>
    draw("polyline", {
      class: dashed ? "roof dashed" : "roof",
      points: corners.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
      css: { stroke: markOf(number) },
      "data-tip": dashed ? `depthwise layers: ${depthwise} MACs per cycle` : `${peak} MACs per cycle`,
    });
  const lower = [
    [Math.max(start, depthwise / bandwidth), depthwise],
    [high, depthwise],
  ];
  return depthwise ? [lineOf(points, false), lineOf(lower, true)] : [lineOf(points, false)];
}

function roofDot({ number, layer, share }, x, y, high, several) {
  const place = [layer.intensity > 0 ? x(layer.intensity) : x(high), y(layer.attained)];
  const text =
    `${several ? `${letterOf(number)} ` : ""}${layer.name} (${layer.kind}): ${short(layer.attained)} of ` +
    `${short(layer.ceiling)} MACs per cycle, ${percent(share)} of the cycles, bound by ${layer.bound}`;
  return draw("circle", {
    cx: place[0].toFixed(1),
    cy: place[1].toFixed(1),
    r: (3 + 22 * Math.sqrt(share)).toFixed(1),
    "data-tip": text,
    class: "dot",
    css: { fill: colourOfKind(layer.kind), stroke: several ? markOf(number) : "var(--card)" },
  });
}

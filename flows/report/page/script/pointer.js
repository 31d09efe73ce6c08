// The chart under the pointer and the keys: hover, select, draw a rectangle.

const HIT = 12;

function nearest(x, y, within) {
  let [best, found] = [within * within, null];
  for (const place of scatter.places) {
    if (!state.passing.has(place.row.number)) continue;
    const away = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (away <= best) [best, found] = [away, place];
  }
  return found;
}

function inCanvas(event) {
  const box = scatter.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function press(event) {
  if (event.button || !scatter.scales) return;
  const [x, y] = inCanvas(event);
  scatter.canvas.setPointerCapture(event.pointerId);
  scatter.drag = { x, y, toX: x, toY: y, moved: false };
}

function move(event) {
  const [x, y] = inCanvas(event);
  const { drag } = scatter;
  if (drag) {
    drag.toX = Math.max(MARGIN.left, Math.min(scatter.width - MARGIN.right, x));
    drag.toY = Math.max(MARGIN.top, Math.min(scatter.height - MARGIN.bottom, y));
    drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > 5;
    drawScatter();
    return;
  }
  const place = nearest(x, y, HIT);
  hover(place?.row.number ?? null);
  if (place) tip.show(event.clientX, event.clientY, tipOf(place.row));
  else tip.hide();
}

function release(event) {
  const { drag, scales } = scatter;
  scatter.drag = null;
  if (!drag || !scales) return;
  if (drag.moved) {
    const [x, y] = [[drag.x, drag.toX].map(scales.x.invert), [drag.y, drag.toY].map(scales.y.invert)];
    state.brush = {
      x: scatter.x,
      y: scatter.y,
      low: [Math.min(...x), Math.min(...y)],
      high: [Math.max(...x), Math.max(...y)],
    };
    refresh();
    return;
  }
  const place = nearest(...inCanvas(event), HIT);
  if (!place) return dropBrush();
  toggle(place.row.number);
  reveal(place.row.number);
}

function leave() {
  hover(null);
  tip.hide();
}

function tipOf(row) {
  const keys = new Set([scatter.x, scatter.y, scatter.colour, ...data.header.objectives]);
  const columns = data.columns.filter(
    (column) => column.key !== "number" && ((column.axis && !column.same) || keys.has(column.key)),
  );
  return [
    make("b", {}, `point ${row.number}`),
    make(
      "dl",
      {},
      columns.map((column) => [make("dt", {}, column.title), make("dd", {}, shown(column, row.values[column.key]))]),
    ),
  ];
}

/** Left and right go along x, up and down along y, among the points that pass the filters. */
function scatterKey(event) {
  const step = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1] }[event.key];
  if (step) {
    const places = scatter.places
      .filter(({ row }) => state.passing.has(row.number))
      .sort((a, b) => a[step[0]] - b[step[0]]);
    const at = places.findIndex(({ row }) => row.number === state.hovered);
    const place = places[at < 0 ? 0 : Math.max(0, Math.min(places.length - 1, at + step[1]))];
    if (place) {
      const box = scatter.canvas.getBoundingClientRect();
      hover(place.row.number);
      tip.show(box.left + place.x, box.top + place.y, tipOf(place.row));
      const told = [scatter.x, scatter.y].map(
        (key) => `${titleOf(key)} ${shown(data.byKey.get(key), place.row.values[key])}`,
      );
      say(`point ${place.row.number}: ${told.join(", ")}`);
    }
  } else if ((event.key === "Enter" || event.key === " ") && state.hovered !== null) {
    toggle(state.hovered);
    reveal(state.hovered);
  } else if (event.key === "Escape") {
    leave();
    dropBrush();
  } else return;
  event.preventDefault();
}

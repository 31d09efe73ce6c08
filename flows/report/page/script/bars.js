// Bars made of boxes: stacks of shares, and differences to either side.

/** A stack; `parts` are {name, value, colour}, `most` is the value of the full width, `mark` a line across. */
function stack(parts, most, mark = null) {
  const width = (value) => `${most ? (100 * value) / most : 0}%`;
  const boxes = parts
    .filter(({ value }) => value > 0)
    .map(({ name, value, colour, more }) =>
      make("i", { css: { width: width(value), background: colour }, "data-tip": `${name}: ${more ?? whole(value)}` }),
    );
  const line =
    mark === null ? "" : make("u", { css: { left: width(mark) }, "data-tip": `roofline bound: ${whole(mark)}` });
  return make("div", { class: "stack" }, ...boxes, line);
}

/** The stack of a selected point, and what it amounts to. */
const barLine = (number, stack, total, text = whole) =>
  make("div", { class: "barline" }, badge(number), stack, make("span", { class: "number" }, text(total)));

/** Stacks of several points, with a title and a legend. */
const barsOf = (id, title, legend, ...lines) =>
  make("div", { class: "bars", id }, make("h3", {}, title), legendOf(legend), ...lines);

/** A bar from the middle to the left (better) or right (worse). */
function swing(value, most) {
  const share = most ? (50 * Math.abs(value)) / most : 0;
  const place = value < 0 ? { right: "50%", width: `${share}%` } : { left: "50%", width: `${share}%` };
  return make("div", { class: "swing" }, make("i", { class: value < 0 ? "less" : "more", css: place }));
}

function legendOf(entries) {
  return make(
    "div",
    { class: "legend" },
    entries.map(([name, colour, doc]) =>
      make(
        "span",
        { title: doc },
        make("i", {
          class: "swatch square",
          ...(colour ? { css: { background: colour } } : { class: "swatch bound" }),
        }),
        name,
      ),
    ),
  );
}

/** Hovering anything with data-tip shows it. */
function tipsWithin(section) {
  section.addEventListener("pointermove", (event) => {
    const text = event.target.closest("[data-tip]")?.dataset.tip;
    if (text) tip.show(event.clientX, event.clientY, [text]);
    else tip.hide();
  });
  section.addEventListener("pointerleave", () => tip.hide());
  return section;
}

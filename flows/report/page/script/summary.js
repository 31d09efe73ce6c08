// The head of the page: what was explored, how far it is, what is best; and the points that failed.

function buildHeader() {
  on("rows", drawHeader);
}

function drawHeader() {
  const { networks, compiler, clock, tiling, effort, objectives, scenarios } = data.header;
  const each = networks.map(({ source, weight, shapes }) => {
    const sizes = Object.entries(shapes).map(([input, dims]) => `${input} ${dims.join("\u00d7")}`);
    return `${weight === 1 ? "" : `${short(weight)} \u00d7 `}${source}${sizes.length ? ` (${sizes.join(", ")})` : ""}`;
  });
  const facts = [
    ["networks", each.join(" + ")],
    ["compiler", compiler],
    ["clock", data.header.axes.includes("clock") ? "" : `${clock / 1e6} MHz`],
    ["tiling", tiling],
    ["weights", data.header.keep_weights ? "stay in SRAM from run to run" : ""],
    ["effort", String(effort)],
    ["objectives", objectives.map(titleOf).join(", ")],
    ["scenarios", scenarios.replace(/^scenarios: /, "")],
  ].filter(([, text]) => text);
  const same =
    data.rows.length > 1
      ? data.columns.filter((column) => column.group === "parameters" && column.same && column.distinct.length)
      : [];
  byId("header").replaceChildren(
    make("div", { class: "title" }, make("h1", {}, data.header.title), liveBadge()),
    make(
      "p",
      { class: "soft facts" },
      facts.map(([name, text]) => make("span", {}, make("b", {}, name), " ", text)),
    ),
    same.length
      ? make(
          "details",
          { class: "fixed", open: drawHeader.open, ontoggle: (event) => (drawHeader.open = event.target.open) },
          make("summary", { class: "soft" }, `${plural(same.length, "parameter")} the same for all points`),
          make(
            "p",
            {},
            same.map((column) =>
              make("span", { class: "chip" }, column.title, " ", make("b", {}, shown(column, column.distinct[0]))),
            ),
          ),
        )
      : "",
    make("div", { class: "tiles" }, tiles()),
    constraintTable(),
    data.miss ? make("p", { class: "reason", id: "miss" }, `Nothing is feasible. Nearest: ${data.miss}.`) : "",
  );
}

/** What each constraint rules out, before and after pricing, and its room at the best point. */
function constraintTable() {
  if (!data.fates.length) return "";
  const before = ({ before, combinations, exact }) =>
    before === null ? "\u2013" : `${exact ? "" : "about "}${whole(before)} of ${whole(combinations)}`;
  const lines = plainTable(
    { id: "constraints", class: "plain" },
    [
      head("constraint"),
      figureHead("ruled out before pricing"),
      figureHead("broken, of those priced"),
      figureHead("slack of the best"),
    ],
    data.fates.map((fate) =>
      tr(
        td(fate.text),
        figure(before(fate)),
        figure(`${whole(fate.broken)} of ${whole(fate.priced)}`),
        figure(fate.slack === null ? "\u2013" : signed(100 * fate.slack, (part) => `${part.toFixed(1)} %`)),
      ),
    ),
  );
  return make("div", { class: "wide" }, lines);
}

function tiles() {
  const count = (test) => data.rows.filter(test).length;
  const tile = (value, label, kind, filter) => {
    const inner = [make("b", {}, value), make("span", {}, label)];
    return filter ? button(inner, filter, { class: `tile ${kind}` }) : make("div", { class: `tile ${kind}` }, inner);
  };
  const only = (key, text) => () => {
    setFilter(key, text);
    byId("points").focus({ preventScroll: true }); // this button has just been replaced
    byId("points").scrollIntoView({ block: "nearest" });
  };
  const [failed, infeasible, aside, front] = ["failed", "infeasible", "on host", "front"].map((state) =>
    count((row) => row.values.state === state),
  );
  const [equal, differs] = ["equal", "differs"].map((verdict) => count((row) => row.confirmed === verdict));
  const known =
    data.total > data.rows.length ? `points of ${whole(data.total)}` : data.rows.length === 1 ? "point" : "points";
  const found = [tile(whole(data.rows.length), known, "")];
  if (front || aside || infeasible) found.push(tile(whole(front), "on the front", "front", only("state", "=front")));
  if (aside) found.push(tile(whole(aside), "leave more to the host", "", only("state", "=on host")));
  if (infeasible) found.push(tile(whole(infeasible), "infeasible", "", only("state", "=infeasible")));
  if (failed) found.push(tile(whole(failed), "failed", "alarm", only("state", "=failed")));
  if (equal) found.push(tile(whole(equal), "equal on RTL", "good", only("confirmed", "=equal")));
  if (differs) found.push(tile(whole(differs), "differ on RTL", "alarm", only("confirmed", "=differs")));
  for (const key of data.header.objectives) {
    const column = data.byKey.get(key);
    const best = column?.group === "metrics" && bestOf(column);
    if (best)
      found.push(
        tile(shown(column, best.values[key]), `${column.more ? "most" : "least"} ${column.label}`, "best", () =>
          select(best.number),
        ),
      );
  }
  return found;
}

function bestOf({ key, more }) {
  let best = null;
  for (const row of data.rows) {
    if (!row.competes || !isNumber(row.values[key])) continue;
    if (!best || (more ? row.values[key] > best.values[key] : row.values[key] < best.values[key])) best = row;
  }
  return best;
}

function select(number) {
  if (!state.selected.includes(number)) toggle(number);
  reveal(number);
}

/** Points that failed, by reason. */
function buildFailures() {
  const list = make("div");
  const title = make("h2", { id: "failures-title" });
  const section = make(
    "section",
    { class: "card", id: "failures", "aria-labelledby": "failures-title", hidden: true },
    make("div", { class: "tools" }, title),
    list,
  );
  on("rows", () => {
    const failed = data.rows.filter((row) => !row.costs.length);
    const reasons = Map.groupBy(failed, ({ error }) => error);
    section.hidden = !failed.length;
    title.textContent = `${plural(failed.length, "point")} without a cost`;
    const sorted = [...reasons].sort(([, a], [, b]) => b.length - a.length);
    list.replaceChildren(
      plainTable(
        {},
        [figureHead("points"), head("reason"), head("for example")],
        sorted
          .slice(0, 50)
          .map(([reason, rows]) =>
            tr(
              figure(whole(rows.length)),
              make("td", { class: "reason" }, reason || "no reason given"),
              make("td", { class: "soft" }, `#${rows[0].number}: ${labelOf(rows[0])}`),
            ),
          ),
      ),
      sorted.length > 50
        ? make("p", { class: "soft" }, `and ${sorted.length - 50} more reasons, in the column "reason" of the table`)
        : "",
    );
  });
  return section;
}

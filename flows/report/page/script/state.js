// What the reader has chosen: filters, order, columns, selected points. Whoever shows it listens.

const state = {
  filters: new Map(), // column key -> text
  brush: null, // {x, y: column keys, low, high: [x, y]}
  sort: { key: "state", descending: false }, // the front on top
  columns: null, // chosen keys, null: the usual ones
  selected: [], // numbers, at most MOST_SELECTED
  hovered: null,
  visible: [], // rows that pass, in order
  passing: new Set(), // their numbers
  bad: new Map(), // column key -> why its filter cannot be read
};

const MOST_SELECTED = 6;
const listeners = { rows: [], selection: [], hover: [], states: [], explained: [] };
const on = (what, run) => listeners[what].push(run);
const tell = (what) => listeners[what].forEach((run) => run());

/** Filters and sorts anew. */
function refresh() {
  const tests = [];
  state.bad.clear();
  for (const [key, text] of state.filters) {
    const column = data.byKey.get(key);
    if (!column) continue;
    try {
      const passes = filterOf(text, column.numeric);
      if (passes) tests.push((row) => passes(row.values[key]));
    } catch (error) {
      state.bad.set(key, error.message);
    }
  }
  if (state.brush) tests.push(inBrush(state.brush));
  state.visible = data.rows.filter((row) => tests.every((test) => test(row)));
  const { key, descending } = state.sort;
  const rank = key === "state" ? (row) => STATES.indexOf(row.values.state) : (row) => row.values[key];
  state.visible.sort((a, b) => {
    const [left, right] = [rank(a), rank(b)];
    const order = inOrder(left, right);
    const missing = [left, right].some((value) => value === null || value === undefined || value === "");
    return (descending && !missing ? -order : order) || (key === "state" ? byGoal(a, b) : 0) || a.number - b.number;
  });
  state.passing = new Set(state.visible.map((row) => row.number));
  tell("rows");
}

/** The better in the first objective first. */
function byGoal(a, b) {
  const [goal] = data.header.objectives;
  const order = inOrder(a.values[goal], b.values[goal]);
  return data.byKey.get(goal)?.more && isNumber(a.values[goal]) && isNumber(b.values[goal]) ? -order : order;
}

function inBrush({ x, y, low, high }) {
  return ({ values }) =>
    isNumber(values[x]) &&
    isNumber(values[y]) &&
    values[x] >= low[0] &&
    values[x] <= high[0] &&
    values[y] >= low[1] &&
    values[y] <= high[1];
}

function setFilter(key, text) {
  if (text.trim()) state.filters.set(key, text);
  else state.filters.delete(key);
  refresh();
}

function clearFilters() {
  state.filters.clear();
  state.brush = null;
  refresh();
}

function sortBy(key) {
  const column = data.byKey.get(key);
  const first = Boolean(column.metric && column.more);
  state.sort = state.sort.key === key ? { key, descending: !state.sort.descending } : { key, descending: first };
  refresh();
}

function setSelected(numbers) {
  state.selected = numbers;
  say(`${plural(numbers.length, "point")} selected`);
  tell("selection");
}

/** Selects a point, or no longer. */
function toggle(number) {
  const row = data.byNumber.get(number);
  if (!row) return;
  if (state.selected.includes(number)) setSelected(state.selected.filter((each) => each !== number));
  else if (!row.costs.length) say(`point ${number} failed: ${row.error}`);
  else setSelected([...state.selected.slice(1 - MOST_SELECTED), number]);
}

const letterOf = (number) => "ABCDEF"[state.selected.indexOf(number)] ?? "";
const MARKS = ["#0077bb", "#cc3311", "#009988", "#aa3377", "#b8860b", "#5a5a9e"];
const markOf = (number) => MARKS[state.selected.indexOf(number)];

/** The badge of a selected point. */
function badge(number) {
  return make("span", { class: "badge", css: { background: markOf(number) } }, letterOf(number));
}

function hover(number) {
  if (state.hovered === number) return;
  state.hovered = number;
  tell("hover");
}

// Start: read what the page carries, or ask the server again and again for what is new.

const POLL = 1000; // ms between two questions to the server
const link = { on: false, session: "", after: 0, failed: 0, error: "", history: [], finished: false, quiet: 0 };
const QUIET = 60; // seconds without a result after which nobody would call a sweep live

function start() {
  const carried = JSON.parse(byId("data").textContent);
  link.on = carried.live;
  byId("main").append(
    make("div", { class: "upper" }, buildScatter(), buildPoints()),
    buildTable(),
    buildLayers(),
    buildFailures(),
  );
  buildHeader();
  if (carried.live) {
    byId("header").replaceChildren(make("div", { class: "title" }, make("h1", {}, carried.title), liveBadge()));
    poll();
    return;
  }
  data.header = carried.header;
  data.total = carried.total;
  data.explanations = new Map(carried.explanations);
  take(carried);
  for (const number of [...data.explanations.keys()].slice(0, 2)) toggle(number);
}

function take({ rows, states }) {
  addRows(rows);
  setStates(states);
  setColumns();
  refresh();
  tell("states");
}

// --- live

function liveBadge() {
  if (!link.on) return "";
  if (link.error) return make("span", { class: "live lost" }, link.error);
  if (link.finished) return make("span", { class: "live" }, "finished");
  if (link.quiet > QUIET)
    return make("span", { class: "live" }, `not finished, last result ${duration(link.quiet)} ago`);
  const { history } = link;
  const [first, last] = [history[0], history.at(-1)];
  const rate =
    history.length > 1 && last.time > first.time ? (1000 * (last.count - first.count)) / (last.time - first.time) : 0;
  const left = data.total - data.rows.length;
  const speed = rate ? `${short(rate, 2)} points/s${left > 0 ? `, ${duration(left / rate)} left` : ""}` : "";
  return make(
    "span",
    { class: "live on" },
    data.total ? make("progress", { max: data.total, value: data.rows.length, "aria-label": "points done" }) : "",
    "live ",
    make("small", {}, speed),
  );
}

/** What the server says is new; {error} if it says nothing, or cannot read its store. */
async function askForRows() {
  try {
    const query = `after=${link.after}&session=${encodeURIComponent(link.session)}`;
    return await (await fetch(`rows?${query}`, { cache: "no-store" })).json();
  } catch {
    return { error: "no answer from the server" };
  }
}

async function poll() {
  const message = await askForRows();
  link.error = message.error ?? "";
  link.failed = message.error ? link.failed + 1 : 0;
  setTimeout(poll, POLL * Math.min(8, 1 + link.failed));
  if (message.error) drawBadge();
  else receive(message);
}

const drawBadge = () => byId("header").querySelector(".live").replaceWith(liveBadge());

function receive(message) {
  if (message.session !== link.session) {
    Object.assign(link, { session: message.session, history: [] });
    Object.assign(data, { header: message.header, rows: [], byNumber: new Map(), kinds: {}, explanations: new Map() });
    setSelected([]);
  }
  data.total = message.total;
  link.after = message.after;
  const changed = message.rows.length || JSON.stringify(message.states) !== link.states;
  link.states = JSON.stringify(message.states);
  link.finished = message.finished;
  link.quiet = message.quiet;
  link.history = [...link.history, { time: performance.now(), count: data.rows.length + message.rows.length }].slice(
    -20,
  );
  if (changed || !data.columns.length) take(message);
  else drawBadge();
}

function askForExplanations() {
  if (!link.on || data.header.systems) return;
  const { explanations } = data; // another sweep has its own
  for (const number of state.selected) {
    const known = explanations.get(number);
    if (known && !known.error) continue;
    explanations.set(number, "pending");
    fetch(`explain?point=${number}`, { cache: "no-store" })
      .then((answer) => answer.json())
      .catch(() => ({ error: "no answer from the server" }))
      .then((known) => {
        explanations.set(number, known);
        tell("explained");
      });
  }
}

start();

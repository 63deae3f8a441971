"use strict";
/* The page: tabs, filters, the list, the threads, the keyboard. */

const ROW_HEIGHT = 46;
const at = (id) => document.getElementById(id);
const state = { sources: [], threads: [], groups: new Map(), found: [], open: [], shown: { prompt: false, tokens: false }, details: new Map() };

async function start() {
  state.sources = await unpack(at("page-data").textContent);
  state.threads = allThreads(state.sources);
  state.groups = byQuestion(state.threads);
  for (const [number, source] of state.sources.entries()) {
    const own = state.threads.filter((thread) => thread.source === number);
    at("report").append(...reportElements(source, own, (thread) => showOne(thread)));
  }
  at("facets").append(...facetsOf(state.threads, state.sources).map(facetElement));
  at("filters").addEventListener("input", refilter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("reset", () => setTimeout(refilter));
  at("more").onclick = toggleFilters;
  at("list").addEventListener("scroll", drawRows);
  addEventListener("resize", drawRows);
  addEventListener("hashchange", readHash);
  addEventListener("keydown", onKey);
  for (const name of ["report", "discussions"]) at(`tab-${name}`).onclick = () => showTab(name);
  for (const what of ["prompt", "tokens"]) at(`show-${what}`).onclick = () => toggle(what);
  at("show-beside").onclick = toggleBeside;
  filter();
  readHash();
  document.body.dataset.ready = "yes";
}

function facetElement([name, values]) {
  const options = values.map((value) => make("option", { value: String(value) }, String(value)));
  const select = make("select", { name }, make("option", { value: "" }, "all"), ...options);
  return make("label", {}, name, select);
}

function showTab(name) {
  for (const each of ["report", "discussions"]) {
    at(each).hidden = each !== name;
    at(`tab-${each}`).setAttribute("aria-selected", String(each === name));
  }
  if (name === "discussions") {
    drawRows();
    at("list").focus({ preventScroll: true });
  }
  noteAddress();
}

/** The address is that of what is in sight. */
function noteAddress() {
  const open = at("discussions").hidden ? undefined : state.open[0];
  history.replaceState(null, "", open ? `#${encodeURIComponent(open.key)}` : "#");
}

/* ---------------------------------------------------------------- the list */

function readFilter() {
  const wanted = Object.fromEntries([...at("facets").querySelectorAll("select")].map((s) => [s.name, s.value]));
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  return { wanted, rewardFrom: number("reward-from"), rewardTo: number("reward-to"), text: at("search").value };
}

/** Find what fits. What is open and is not among it gives way to the first that is. */
function filter() {
  const asked = readFilter();
  state.fits = asksOfTurns(asked) ? (turn) => turnFits(turn, asked) : () => false;
  state.found = state.threads.filter((thread) => threadFits(thread, asked, state.sources));
  at("count").textContent = `${state.found.length} of ${state.threads.length} discussions`;
  at("rows").style.height = `${state.found.length * ROW_HEIGHT}px`;
  if (!state.found.includes(state.open[0])) state.open = state.found.slice(0, 1);
  bringIntoSight();
  drawRows();
  drawThreads();
}

function refilter() {
  filter();
  noteAddress();
}

/** On a narrow screen: show or hide what there is to filter by. */
function toggleFilters() {
  at("more").setAttribute("aria-expanded", String(at("filters").classList.toggle("open")));
}

function drawRows() {
  const { scrollTop, clientHeight } = at("list");
  const [first, end] = rowsInSight({ scrollTop, height: clientHeight, rowHeight: ROW_HEIGHT, count: state.found.length });
  at("rows").replaceChildren(...state.found.slice(first, end).map((thread, i) => rowElement(thread, first + i)));
  const selected = state.found.indexOf(state.open[0]);
  at("list").setAttribute("aria-activedescendant", selected < 0 ? "" : `row-${selected}`);
}

function rowElement(thread, position) {
  const about = [occurrenceName(thread, state.sources), thread.domain].filter(Boolean).join(" · ");
  const row = make(
    "div",
    { className: "row", id: `row-${position}`, onclick: () => showOne(thread) },
    make("div", {}, thread.question),
    make("div", { className: "about" }, ...verdictMarks(thread), about),
  );
  row.style.top = `${position * ROW_HEIGHT}px`;
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", String(thread === state.open[0]));
  return row;
}

/** Open the discussion that stands so many places below the open one. */
function move(places) {
  if (!state.found.length) return;
  const next = state.found.indexOf(state.open[0]) + places;
  showOne(state.found[Math.min(Math.max(next, 0), state.found.length - 1)]);
}

/** Scroll the list as little as shows the open discussion, where it is in the list. */
function bringIntoSight() {
  const position = state.found.indexOf(state.open[0]);
  if (position < 0) return;
  const list = at("list");
  const top = position * ROW_HEIGHT;
  list.scrollTop = Math.min(Math.max(list.scrollTop, top + ROW_HEIGHT - list.clientHeight), top);
}

/* ---------------------------------------------------------------- the threads */

function showOne(thread) {
  state.open = [thread];
  showTab("discussions");
  bringIntoSight();
  drawRows();
  drawThreads();
  at("reading").scrollIntoView(); // on a narrow screen it is below the list
}

function showBeside(thread) {
  state.open = [state.open[0], thread];
  drawThreads();
}

/** Put the question's next occurrence beside the open thread, or take it away. */
function toggleBeside() {
  const [first, second] = state.open;
  const others = occurrencesBeside(first);
  if (second) showOne(first);
  else if (others.length) showBeside(others[others.length - 1]);
}

/** Where else the question of a thread was asked. */
function occurrencesBeside(thread) {
  return (state.groups.get(thread?.question_key) ?? []).filter((other) => other !== thread);
}

async function drawThreads() {
  const open = [...state.open];
  const wantsDetails = state.shown.prompt || state.shown.tokens;
  const details = await Promise.all(open.map((thread) => (wantsDetails ? detailsOf(thread) : undefined)));
  if (open.some((thread, i) => thread !== state.open[i])) return; // another was opened meanwhile
  drawToolbar();
  if (!open.length) at("threads").replaceChildren(make("p", { className: "faint" }, "No discussion fits."));
  else at("threads").replaceChildren(...open.map((thread, i) =>
    threadElement(thread, {
      sources: state.sources,
      occurrences: state.groups.get(thread.question_key),
      shown: state.shown,
      details: details[i],
      fits: state.fits,
      open: showBeside,
    }),
  ));
}

function drawToolbar() {
  for (const what of ["prompt", "tokens"]) at(`show-${what}`).setAttribute("aria-pressed", String(state.shown[what]));
  at("show-beside").setAttribute("aria-pressed", String(state.open.length > 1));
  at("show-beside").disabled = !occurrencesBeside(state.open[0]).length;
}

/** Prompts and tokens of a thread by turn; undefined where the page does not hold them. */
async function detailsOf(thread) {
  const id = `details-${thread.source}-${thread.chunk}`;
  const packed = at(id);
  if (!packed) return undefined;
  if (!state.details.has(id)) state.details.set(id, unpack(packed.textContent));
  return (await state.details.get(id))[thread.id];
}

function toggle(what) {
  state.shown[what] = !state.shown[what];
  drawThreads();
}

/* ---------------------------------------------------------------- keyboard and address */

const KEYS = {
  r: () => showTab("report"),
  d: () => showTab("discussions"),
  ArrowDown: () => move(1), j: () => move(1),
  ArrowUp: () => move(-1), k: () => move(-1),
  PageDown: () => move(10),
  PageUp: () => move(-10),
  p: () => toggle("prompt"),
  t: () => toggle("tokens"),
  b: toggleBeside,
  "/": () => { showTab("discussions"); at("search").focus(); },
};

function onKey(event) {
  const typing = event.target.matches("input, select");
  if (typing && event.key === "Escape") at("list").focus();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  const scrolls = event.key.length > 1; // arrows and pages are the list's only where it has the focus
  if (scrolls && event.target !== at("list")) return;
  event.preventDefault();
  KEYS[event.key]();
}

function readHash() {
  const key = decodeURIComponent(location.hash.slice(1));
  const thread = state.threads.find((each) => each.key === key);
  if (thread) showOne(thread);
  else showTab(state.sources.some((source) => source.figures.length) ? "report" : "discussions");
}

addEventListener("DOMContentLoaded", start);

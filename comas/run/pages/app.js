"use strict";
/* The page: tabs, filters, the list, the threads, the keyboard. */

const ROW_HEIGHT = 46;
const at = (id) => document.getElementById(id);
const POLL_MS = 3000;
const state = { sources: [], threads: [], groups: new Map(), found: [], open: [], shown: { prompt: false, tokens: false, formatted: true }, folds: new Map(), details: new Map(), metrics: [...SHOWN_AT_FIRST] };

async function start() {
  state.sources = await unpack(at("page-data").textContent);
  state.meanings = await unpack(at("page-meanings").textContent);
  const isLive = state.sources.some((source) => source.live);
  state.threads = allThreads(state.sources);
  state.groups = byQuestion(state.threads);
  at("report").append(make("div", { id: "results" }), make("div", { id: "curves" }), make("div", { id: "reports" }));
  drawResults();
  drawCurves();
  drawReports();
  drawFacets();
  at("filters").addEventListener("input", refilter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("reset", () => setTimeout(refilter));
  at("more").onclick = toggleFilters;
  at("list").addEventListener("scroll", drawRows);
  addEventListener("resize", drawRows);
  addEventListener("hashchange", readHash);
  addEventListener("keydown", onKey);
  addEventListener("beforeprint", () => foldTurns(true));
  for (const name of ["report", "discussions"]) at(`tab-${name}`).onclick = () => showTab(name);
  for (const what of Object.keys(state.shown)) at(`show-${what}`).onclick = () => toggle(what);
  at("show-beside").onclick = toggleBeside;
  filter();
  readHash();
  at("progress").hidden = !isLive;
  if (isLive) {
    drawProgress();
    setTimeout(follow, POLL_MS);
  }
  document.body.dataset.ready = "yes";
}

/** Draw the filters; keeps what was chosen in them. */
function drawFacets() {
  const { wanted } = readFilter();
  at("facets").replaceChildren(...facetsOf(state.threads, state.sources).map(facetElement));
  for (const list of at("facets").querySelectorAll("select")) list.value = wanted[list.name] ?? "";
}

/** Draw the report of each source, but for its curves. */
function drawReports() {
  at("reports").replaceChildren(...state.sources.flatMap((source, number) => {
    const own = state.threads.filter((thread) => thread.source === number);
    return reportElements(source, own, (thread) => showOne(thread));
  }));
}

function drawResults() {
  at("results").replaceChildren(...resultElements(state.sources));
}

function drawCurves() {
  at("curves").replaceChildren(...curvesElement(state.sources, state.metrics, state.meanings, (name) => {
    state.metrics.unshift(name);
    drawCurves();
  }));
}

/* ---------------------------------------------------------------- live runs */

function drawProgress(fault = "") {
  const said = state.sources.map(({ name, live }) =>
    (state.sources.length > 1 ? `${name}: ` : "") + live.progress);
  at("progress").textContent = fault || said.join(" · ");
}

/** Fetch the news of every source; undefined if the server does not answer. */
async function news() {
  const have = state.sources.map((source) => `have=${encodeURIComponent(source.live.mark)}`).join("&");
  try {
    const answer = await fetch(`new?${have}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const { reload, sources } = await answer.json();
    if (reload) location.reload();
    return sources;
  } catch {
    drawProgress("No connection: the command that serves this page has ended or is busy. Trying again.");
    return undefined;
  }
}

/** Poll for news. */
async function follow() {
  const found = await news();
  if (found) {
    takeNews(found);
    drawProgress();
  }
  setTimeout(follow, POLL_MS);
}

/** Show the news; what is open, chosen and visible stays. */
function takeNews(news) {
  const noted = JSON.stringify(state.sources.map((source) => source.notes));
  const known = new Set(state.threads.map((thread) => thread.key));
  const threads = news.flatMap((of, number) => takeIn(state.sources[number], number, of, known));
  if (news.some((of) => of.featured) || noted !== JSON.stringify(news.map((of) => of.notes))) drawResults();
  if (news.some((of) => of.rows.length) && !at("curves").contains(document.activeElement)) drawCurves();
  state.threads = state.threads.concat(threads).sort((one, other) => one.source - other.source);
  if (news.some((of) => of.featured)) drawReports();
  if (!threads.length) return;
  state.groups = byQuestion(state.threads);
  if (!at("facets").contains(document.activeElement)) drawFacets();
  const open = state.open[0];
  find();
  drawRows();
  if (!open && state.found.length) filter();
  drawToolbar();
}

function facetElement([name, values]) {
  const options = values.map((value) => make("option", { value: String(value) }, String(value)));
  const select = make("select", { name }, make("option", { value: "" }, "all"), ...options);
  return make("label", {}, name, select);
}

function showTab(name, isPassing = false) {
  for (const each of ["report", "discussions"]) {
    at(each).hidden = each !== name;
    at(`tab-${each}`).setAttribute("aria-selected", String(each === name));
  }
  if (name === "discussions") drawRows();
  at(name === "report" ? "report" : "list").focus({ preventScroll: true }); // so that keys scroll it
  noteAddress(isPassing);
}

/** Set the address to what is shown; the Back button returns to the one before, unless isPassing. */
function noteAddress(isPassing = true) {
  const open = at("discussions").hidden ? undefined : state.open[0];
  const address = open ? `#${encodeURIComponent(open.key)}` : "";
  if (address === location.hash) return;
  history[isPassing ? "replaceState" : "pushState"](null, "", address || "#");
}

/* ---------------------------------------------------------------- the list */

function readFilter() {
  const wanted = Object.fromEntries([...at("facets").querySelectorAll("select")].map((s) => [s.name, s.value]));
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  return { wanted, rewardFrom: number("reward-from"), rewardTo: number("reward-to"), text: at("search").value };
}

/** Find the threads that fit the filter. */
function find() {
  const asked = readFilter();
  state.fits = asksOfTurns(asked) ? (turn) => turnFits(turn, asked) : () => false;
  state.found = state.threads.filter((thread) => threadFits(thread, asked, state.sources));
  at("count").textContent = `${state.found.length} of ${state.threads.length} discussions`;
  at("rows").style.height = `${state.found.length * ROW_HEIGHT}px`;
}

/** Show the threads that fit; if the open one does not, open the first that does. */
function filter() {
  find();
  if (!state.found.includes(state.open[0])) state.open = state.found.slice(0, 1);
  bringIntoSight();
  drawRows();
  drawThreads();
}

function refilter() {
  filter();
  noteAddress();
}

/** Show or hide the filters, on a narrow screen. */
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

/** Open the discussion so many places below the open one. */
function move(places, isPassing) {
  if (!state.found.length) return;
  const next = state.found.indexOf(state.open[0]) + places;
  showOne(state.found[Math.min(Math.max(next, 0), state.found.length - 1)], isPassing);
}

/** Scroll the list as little as needed to show the open discussion. */
function bringIntoSight() {
  const position = state.found.indexOf(state.open[0]);
  if (position < 0) return;
  const list = at("list");
  const top = position * ROW_HEIGHT;
  list.scrollTop = Math.min(Math.max(list.scrollTop, top + ROW_HEIGHT - list.clientHeight), top);
}

/* ---------------------------------------------------------------- the threads */

function showOne(thread, isPassing = false) {
  state.open = [thread];
  showTab("discussions", isPassing);
  bringIntoSight();
  drawRows();
  drawThreads();
  at("reading").scrollIntoView(); // on a narrow screen it is below the list
}

function showBeside(...threads) {
  state.open = [state.open[0], ...threads];
  drawThreads();
}

/** Show or hide the same question in other runs beside the open thread. */
function toggleBeside() {
  const [first, second] = state.open;
  if (second) showOne(first);
  else if (first) showBeside(...occurrencesBeside(first));
}

/** The threads to show beside a thread. */
function occurrencesBeside(thread) {
  return thread ? besideOf(thread, state.groups.get(thread.question_key) ?? []) : [];
}

async function drawThreads() {
  const open = [...state.open];
  const wantsDetails = state.shown.prompt || state.shown.tokens;
  const details = await Promise.all(open.map((thread) => (wantsDetails ? detailsOf(thread) : undefined)));
  if (state.shown.formatted && open.some(needsMarkup)) await loadMarkup();
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
      folds: state.folds,
      open: (other) => showBeside(other),
    }),
  ));
  // On a narrow screen, the whole page would scroll away from the filters.
  if (matchMedia("(min-width: 801px)").matches) at("threads").querySelector(".turn.matching")?.scrollIntoView({ block: "nearest" });
}

function drawToolbar() {
  for (const what of Object.keys(state.shown)) at(`show-${what}`).setAttribute("aria-pressed", String(state.shown[what]));
  at("show-beside").setAttribute("aria-pressed", String(state.open.length > 1));
  at("show-beside").disabled = !occurrencesBeside(state.open[0]).length;
}

/** Prompts and tokens of a thread by turn; undefined if there are none. */
async function detailsOf(thread) {
  const id = `details-${thread.source}-${thread.chunk}`;
  if (!state.details.has(id)) state.details.set(id, detailsUnder(id, thread));
  return (await state.details.get(id))[thread.id];
}

/** Those of all threads in a chunk: from the page, or from the server of a live run. */
async function detailsUnder(id, thread) {
  if (at(id)) return unpack(at(id).textContent);
  if (!state.sources[thread.source].live) return {};
  const answer = await fetch(`details?run=${thread.source}&step=${thread.step}`);
  if (answer.ok) return answer.json();
  state.details.delete(id); // so that it is fetched again
  return {};
}

/** Go to the turn so many places below the one with the focus. */
function moveTurn(places) {
  const turns = turnsIn(at("threads"));
  const now = turns.indexOf(document.activeElement?.closest(".turn"));
  const next = turns[Math.max(now + places, 0)];
  if (next) showTurn(next);
}

/** Open or fold all turns shown. */
function foldTurns(isOpen = !at("threads").querySelector(".fold[open]")) {
  for (const each of at("threads").querySelectorAll(".fold")) each.open = isOpen;
}

function toggle(what) {
  state.shown[what] = !state.shown[what];
  drawThreads();
}

/* ---------------------------------------------------------------- keyboard and address */

const KEYS = {
  r: () => showTab("report"),
  d: () => showTab("discussions"),
  ArrowDown: (isHeld) => move(1, isHeld), j: (isHeld) => move(1, isHeld),
  ArrowUp: (isHeld) => move(-1, isHeld), k: (isHeld) => move(-1, isHeld),
  PageDown: (isHeld) => move(10, isHeld),
  PageUp: (isHeld) => move(-10, isHeld),
  Home: () => move(-Infinity),
  End: () => move(Infinity),
  n: () => moveTurn(1),
  N: () => moveTurn(-1),
  o: () => foldTurns(),
  p: () => toggle("prompt"),
  t: () => toggle("tokens"),
  f: () => toggle("formatted"),
  b: toggleBeside,
  "/": () => { showTab("discussions"); at("search").focus(); },
};

function onKey(event) {
  const typing = event.target.matches("input, select");
  if (typing && event.key === "Escape") at("list").focus();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  const scrolls = event.key.length > 1; // only when the list has the focus
  if (scrolls && event.target !== at("list")) return;
  event.preventDefault();
  KEYS[event.key](event.repeat);
}

function readHash() {
  const key = decodeURIComponent(location.hash.slice(1));
  const thread = state.threads.find((each) => each.key === key);
  if (thread) showOne(thread);
  else showTab(state.sources.some((source) => source.rows.length || source.live) ? "report" : "discussions");
}

addEventListener("DOMContentLoaded", start);

"use strict";
/* One discussion as a thread. */

const MARKS = { correct: "✓", wrong: "✗", unanswered: "?", failed: "!" };
const NEAR = /^within /; // the sign of a verdict within a tolerance
const LONG_CHARS = 5000;
const LONG_MESSAGE = 400;

/** Create an element; texts are never parsed as HTML. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The name of a thread in lists and buttons. */
function occurrenceName(thread, sources) {
  const parts = sources.length > 1 ? [sources[thread.source].name] : [];
  if (thread.step !== null) parts.push(`step ${thread.step}`);
  return [...parts, ...Object.values(thread.labels)].join(" · ");
}

/** Marks for the verdicts on a thread's solutions. */
function verdictMarks(thread) {
  return solutionsOf(thread).map((turn) => make("span", { className: turn.verdict, title: verdictName(turn) }, MARKS[turn.verdict] + " "));
}

function solutionsOf(thread) {
  return thread.turns.filter((turn) => turn.is_solution && turn.verdict);
}

/** `correct (within 5 %)` */
function verdictName(turn) {
  const near = turn.signs.find((sign) => NEAR.test(sign));
  return near ? `${turn.verdict} (${near})` : turn.verdict;
}

/** A number with at most three digits after the point. */
function short(number) {
  return number === null ? "not finite" : String(Math.round(number * 1000) / 1000);
}

/** The heading of a turn: role, agent, verdict, scores, reward, signs. */
function aboutTurn(turn, thread) {
  const said = [make("strong", {}, turn.role), make("span", {}, turn.agent === null ? "given" : `agent ${turn.agent}`)];
  if (turn.asked) {
    const { continues, tools } = turn.asked;
    said.unshift(make("span", {}, `request ${numberOf(turn.id, thread)}`));
    said.push(make("span", {}, continues ? `continues request ${numberOf(continues, thread)}` : "new chat"));
    if (tools.length) said.push(make("span", {}, `may call ${tools.join(", ")}`));
    said.push(make("span", {}, turn.id));
  }
  if (turn.round !== null) said.push(make("span", {}, `round ${turn.round}`));
  if (turn.is_solution && turn.verdict) {
    said.push(make("span", { className: turn.verdict }, `${MARKS[turn.verdict]} ${verdictName(turn)}`));
  }
  if (turn.scores.length) said.push(make("span", {}, `score ${turn.scores.join(", ")}`));
  if (turn.reward !== null) said.push(make("span", {}, `reward ${short(turn.reward)}`));
  for (const sign of turn.signs.filter((each) => !NEAR.test(each))) {
    said.push(make("span", { className: "sign" }, sign));
  }
  if (turn.finish !== "stop") said.push(make("span", { className: "failed" }, `ended by ${turn.finish}`));
  const tokens = turn.num_prompt_tokens + turn.num_response_tokens;
  said.push(make("span", {}, tokens ? `${turn.num_prompt_tokens} + ${turn.num_response_tokens} tokens` : "tokens not recorded"));
  return said;
}

/** A box for each token, with its log-probability and advantage. */
function tokenBoxes(detail) {
  const boxes = detail.tokens.map((text, i) => {
    const advantage = detail.advantages?.[i];
    const tone = !advantage ? "" : advantage > 0 ? " gains" : " loses";
    const numbers = [make("small", {}, short(detail.logprobs[i]))];
    if (advantage !== undefined) numbers.push(make("small", {}, (advantage > 0 ? "+" : "") + short(advantage)));
    return make("span", { className: `token${tone}` }, text.replaceAll("\n", "⏎"), ...numbers);
  });
  return make("div", { className: "tokens" }, ...boxes);
}

const LEGEND = "Under each token: the log-probability with which it was sampled, then its advantage in the update, if it had one: above 0 on ";

function tokenLegend() {
  return make("p", { className: "caption" }, LEGEND, make("span", { className: "gains" }, "green"),
    ", below on ", make("span", { className: "loses" }, "red"), ". ⏎ is the end of a line.");
}

/** A message of a program's request; a long one is folded. */
function messageElement({ role, content }, isFormatted) {
  const begins = make("span", { className: "begins" }, content.slice(0, 200).replace(/\s+/g, " "));
  const text = isFormatted ? formatted(content) : make("pre", {}, content);
  return make("details", { className: "message", open: content.length < LONG_MESSAGE }, make("summary", {}, role, begins), text);
}

/** The number of a program's request, from 1; 0 for a turn that no request led to. */
function numberOf(id, thread) {
  return thread.turns.filter((turn) => turn.asked).findIndex((turn) => turn.id === id) + 1;
}

/** What a program returned, or why it failed. */
function programElement(thread) {
  const { answer, returned, error } = thread.program;
  if (error) return make("p", { className: "wrong" }, `The program failed after ${thread.turns.length} replies: ${error}`);
  const number = numberOf(answer, thread);
  const final = number ? `The reply to request ${number} is its answer.` : "That is its answer, which no agent gave.";
  return make("p", {}, `The program returned ${returned ? `"${returned}"` : "nothing"}. `, make("span", { className: "faint" }, final));
}

/** The prompt and text of a turn. shown: {prompt, tokens, formatted}; detail may be undefined. */
function turnParts(turn, shown, detail) {
  const tokens = shown.tokens && detail?.tokens;
  const thinking = make("details", { className: "thinking" }, make("summary", {}, "thinking"), make("pre", {}, turn.thinking));
  return [
    ...(turn.asked?.messages ?? []).map((message) => messageElement(message, shown.formatted)),
    turn.asked ? make("div", { className: "caption" }, "reply") : null,
    shown.prompt && detail ? make("pre", { className: "prompt" }, detail.prompt) : null,
    turn.thinking && !tokens ? thinking : null,
    tokens ? tokenBoxes(detail) : make("div", { className: "said" }, shown.formatted ? formatted(turn.text) : make("pre", {}, turn.text)),
  ];
}

/** A foldable turn, with its answers below. view: see threadElement. */
function turnElement(turn, thread, view) {
  const { shown, details, fits, folds } = view;
  const begins = turn.text.slice(0, 200).replace(/\s+/g, " ");
  const about = make("summary", { className: "about" }, ...aboutTurn(turn, thread), make("span", { className: "begins" }, begins));
  const folded = make("details", { className: "fold" }, about, ...turnParts(turn, shown, details?.[turn.id]));
  const name = `${thread.key} ${turn.id}`;
  folded.open = folds.get(name) ?? (!isLong(thread) || fits(turn));
  folded.addEventListener("toggle", () => folds.set(name, folded.open));
  const answers = thread.turns.filter((other) => other.parent === turn.id);
  const element = make("article", { className: fits(turn) ? "turn matching" : "turn" }, folded);
  element.dataset.turn = turn.id;
  element.append(...answers.map((answer) => turnElement(answer, thread, view)));
  return element;
}

function isLong(thread) {
  return thread.turns.reduce((chars, turn) => chars + turn.text.length, 0) > LONG_CHARS;
}

/** A table of the solutions by round, with verdict, scores and reward; its heads link to them. */
function stripElement(thread) {
  const solutions = solutionsOf(thread);
  if (solutions.length < 2) return null;
  const line = (name, cell) => make("tr", {}, make("th", {}, name), ...solutions.map((turn) => make("td", {}, cell(turn))));
  const head = ({ id, round, agent }) => make("button", { type: "button", onclick: (event) => showTurn(turnsIn(event.target.closest(".thread")).find((each) => each.dataset.turn === id)) },
    round === null ? (numberOf(id, thread) ? `request ${numberOf(id, thread)}` : id) : `${round}${solutions.filter((each) => each.round === round).length > 1 ? ` · agent ${agent}` : ""}`);
  return make("table", { className: "strip" }, line("round", head),
    line("verdict", (turn) => make("span", { className: turn.verdict, title: verdictName(turn) }, MARKS[turn.verdict])),
    line("score", (turn) => turn.scores.join(", ")),
    line("reward", (turn) => (turn.reward === null ? "" : short(turn.reward))));
}

function turnsIn(thread) {
  return [...thread.querySelectorAll(".turn")];
}

/** Unfold a turn and go to it. */
function showTurn(element) {
  const folded = element.querySelector("details");
  folded.open = true;
  folded.querySelector("summary").focus({ preventScroll: true });
  element.scrollIntoView({ block: "start" });
}

/** The reference answer, which no agent sees; a long one is folded. */
function goldElement(gold) {
  if (!gold) return null;
  const said = "Gold answer, which no agent sees";
  if (gold.length < 200 && !gold.includes("\n")) return make("p", { className: "gold" }, make("span", { className: "faint" }, `${said}: `), make("code", {}, gold));
  return make("details", { className: "gold" }, make("summary", {}, said), make("pre", {}, gold));
}

/**
 * A thread: heading, links to the same question elsewhere, and the turns.
 * folds: turns folded or unfolded by hand; fits: whether a turn fits the filter.
 */
function threadElement(thread, view) {
  const { sources, occurrences, shown, details, open } = view;
  const links = occurrences.filter((other) => other.key !== thread.key).map((other) =>
    make("button", { type: "button", onclick: () => open(other) }, occurrenceName(other, sources), " ", ...verdictMarks(other)),
  );
  const has = (part) => Object.values(details ?? {}).some((each) => each[part]);
  const missing = (shown.prompt && !has("prompt")) || (shown.tokens && !has("tokens"))
    ? make("p", { className: "faint" }, "Prompts and tokens are not on this page: " + sources[thread.source].without_details)
    : null;
  return make(
    "section",
    { className: "thread", tabIndex: 0 },
    make("h3", {}, occurrenceName(thread, sources)),
    make("div", { className: "about" }, thread.id),
    make("div", { className: "question" }, shown.formatted ? formatted(thread.question) : make("pre", {}, thread.question)),
    goldElement(thread.gold),
    thread.program ? programElement(thread) : null,
    links.length ? make("div", { className: "occurrences" }, make("span", { className: "faint" }, "Asked also, shown beside:"), ...links) : null,
    missing,
    stripElement(thread),
    shown.tokens && has("tokens") ? tokenLegend() : null,
    ...thread.turns.filter((turn) => turn.parent === null).map((turn) => turnElement(turn, thread, view)),
  );
}

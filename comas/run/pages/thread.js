"use strict";
/* One discussion as a thread. */

const MARKS = { correct: "✓", wrong: "✗", unanswered: "?", failed: "!" };

/** An element with properties and children; texts are never read as HTML. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** How a thread is named in lists and buttons. */
function occurrenceName(thread, sources) {
  const parts = sources.length > 1 ? [sources[thread.source].name] : [];
  if (thread.step !== null) parts.push(`step ${thread.step}`);
  return [...parts, ...Object.values(thread.labels)].join(" · ");
}

/** The verdicts on a thread's solutions, or on its answer, as marks. */
function verdictMarks(thread) {
  const solutions = thread.turns.filter((turn) => turn.parent === null && turn.verdict);
  return solutions.map((turn) => make("span", { className: turn.verdict, title: turn.verdict }, MARKS[turn.verdict] + " "));
}

/** A number with at most three digits after the point. */
function short(number) {
  return String(Math.round(number * 1000) / 1000);
}

/** The words over a turn: who spoke, in which part, and what came of it. */
function aboutTurn(turn) {
  const said = [make("strong", {}, turn.role), make("span", {}, turn.agent === null ? turn.author || "given" : `agent ${turn.agent}`)];
  if (turn.round !== null) said.push(make("span", {}, `round ${turn.round}`));
  if (turn.parent === null && turn.verdict) {
    said.push(make("span", { className: turn.verdict }, `${MARKS[turn.verdict]} ${turn.verdict}`));
  }
  if (turn.scores.length) said.push(make("span", {}, `score ${turn.scores.join(", ")}`));
  if (turn.reward !== null) said.push(make("span", {}, `reward ${short(turn.reward)}`));
  for (const sign of turn.signs) said.push(make("span", { className: "sign" }, sign));
  if (turn.finish !== "stop") said.push(make("span", { className: "failed" }, `ended by ${turn.finish}`));
  said.push(make("span", {}, `${turn.num_prompt_tokens} + ${turn.num_response_tokens} tokens`));
  return said;
}

/** Every token in a box of its own, over its log-probability and its advantage. */
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

/** What was said, in which calls of tools are folded with their answers. */
function saidElement(turn) {
  let end = 0;
  const parts = turn.calls.flatMap(([start, after]) => {
    const call = turn.text.slice(start, after);
    const folded = make("details", {}, make("summary", {}, `call: ${call.split("\n")[0]}`), call);
    const before = turn.text.slice(end, start);
    end = after + (turn.text[after] === "\n" ? 1 : 0);  // a folded part begins and ends a line
    return [before, folded];
  });
  return make("pre", {}, ...parts, turn.text.slice(end));
}

/** A turn with all turns that answer it. shown: {prompt, tokens}; detail may be undefined. */
function turnElement(turn, thread, shown, details, fits) {
  const detail = details?.[turn.id];
  const parts = [make("div", { className: "about" }, ...aboutTurn(turn))];
  if (shown.prompt && detail) parts.push(make("pre", { className: "prompt" }, detail.prompt));
  const tokens = shown.tokens && detail?.tokens;
  if (turn.thinking && !tokens) {
    parts.push(make("details", { className: "thinking" }, make("summary", {}, "thinking"), make("pre", {}, turn.thinking)));
  }
  parts.push(tokens ? tokenBoxes(detail) : saidElement(turn));
  const answers = thread.turns.filter((other) => other.parent === turn.id);
  const element = make("article", { className: fits(turn) ? "turn matching" : "turn" }, ...parts);
  element.append(...answers.map((answer) => turnElement(answer, thread, shown, details, fits)));
  return element;
}

/** The reference answer, which no agent sees; a long one is folded. */
function goldElement(gold) {
  if (!gold) return null;
  const said = "Gold answer, which no agent sees";
  if (gold.length < 200 && !gold.includes("\n")) return make("p", { className: "gold" }, make("span", { className: "faint" }, `${said}: `), make("code", {}, gold));
  return make("details", { className: "gold" }, make("summary", {}, said), make("pre", {}, gold));
}

/** A whole thread: heading, where else the question was asked, and the turns. */
function threadElement(thread, { sources, occurrences, shown, details, fits, open }) {
  const links = occurrences.filter((other) => other.key !== thread.key).map((other) =>
    make("button", { type: "button", onclick: () => open(other) }, occurrenceName(other, sources), " ", ...verdictMarks(other)),
  );
  const missing = (shown.prompt || shown.tokens) && !details
    ? make("p", { className: "faint" }, "Prompts and tokens are not on this page: " + sources[thread.source].without_details)
    : null;
  return make(
    "section",
    { className: "thread", tabIndex: 0 },
    make("h3", {}, occurrenceName(thread, sources)),
    make("div", { className: "about" }, thread.id),
    make("pre", { className: "question" }, thread.question),
    goldElement(thread.gold),
    links.length ? make("div", { className: "occurrences" }, make("span", { className: "faint" }, "Asked also, shown beside:"), ...links) : null,
    missing,
    ...thread.turns.filter((turn) => turn.parent === null).map((turn) => turnElement(turn, thread, shown, details, fits)),
  );
}

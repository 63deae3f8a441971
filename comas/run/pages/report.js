"use strict";
/* The report of each source: tables, and discussions worth a look. */

const NOTES_IN_SIGHT = 3;
const SHOWN_CHARS = 150; // of a question in a button

/** A table with a heading. */
function tableElement({ title, header, rows }) {
  const head = make("tr", {}, ...header.map((name) => make("th", {}, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, String(value)))));
  return make("div", {}, make("h2", {}, title), make("table", {}, head, ...body));
}

/** The result of each run in a sentence, below how it ended and its warnings. */
function resultElements(sources) {
  return sources.flatMap((source) => {
    const [name, notes] = [sources.length > 1 ? `${source.name}: ` : "", source.notes];
    const item = (note) => make("li", {}, name + note);
    const [first, others] = [notes.slice(0, NOTES_IN_SIGHT).map(item), notes.slice(NOTES_IN_SIGHT).map(item)];
    const rest = make("details", {}, make("summary", {}, `${name}${others.length} more warnings`), ...others);
    return [
      make("ul", { className: "notes", hidden: !notes.length }, ...first, others.length ? rest : null),
      make("p", { className: "result" }, source.result && name + source.result),
    ];
  });
}

/** Everything about one source. open: shows a thread. */
function reportElements(source, threads, open) {
  const elements = [make("h2", {}, source.path)];
  const featured = source.featured.map((id) => threads.find((thread) => thread.id === id)).filter(Boolean);
  if (featured.length) {
    elements.push(make("h2", {}, "Rewards and verdicts disagree"));
    for (const thread of featured) {
      const name = [`step ${thread.step} `, ...verdictMarks(thread), thread.question.slice(0, SHOWN_CHARS)];
      if (thread.question.length > SHOWN_CHARS) name.push(" ...");
      elements.push(make("p", {}, make("button", { type: "button", className: "featured", onclick: () => open(thread) }, ...name)));
    }
  }
  return [...elements, ...source.tables.map(tableElement)];
}

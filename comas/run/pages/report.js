"use strict";
/* The report of each source: tables, and discussions worth a look. */

/** A table with a heading. */
function tableElement({ title, header, rows }) {
  const head = make("tr", {}, ...header.map((name) => make("th", {}, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, String(value)))));
  return make("div", {}, make("h2", {}, title), make("table", {}, head, ...body));
}

/** What each run came to, in a sentence. */
function resultElements(sources) {
  return sources.map((source) => make("p", { className: "result" },
    (sources.length > 1 && source.result ? `${source.name}: ` : "") + source.result));
}

/** Everything about one source. open: shows a thread. */
function reportElements(source, threads, open) {
  const elements = [make("h2", {}, source.path)];
  const featured = source.featured.map((id) => threads.find((thread) => thread.id === id)).filter(Boolean);
  if (featured.length) {
    elements.push(make("h2", {}, "Rewards and verdicts disagree"));
    for (const thread of featured) {
      const name = [`step ${thread.step} · ${thread.question} `, ...verdictMarks(thread)];
      elements.push(make("p", {}, make("button", { type: "button", onclick: () => open(thread) }, ...name)));
    }
  }
  return [...elements, ...source.tables.map(tableElement)];
}

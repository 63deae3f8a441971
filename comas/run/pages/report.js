"use strict";
/* The report of each source: facts, figures, tables, and discussions worth a look. */

/** A table with a heading. */
function tableElement({ title, header, rows }) {
  const head = make("tr", {}, ...header.map((name) => make("th", {}, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, String(value)))));
  return make("div", {}, make("h2", {}, title), make("table", {}, head, ...body));
}

/** Everything about one source. open: shows a thread. */
function reportElements(source, threads, open) {
  const elements = [make("h2", {}, source.path)];
  for (const { title, svg } of source.figures) {
    // Our own drawing: no text of a model is in it.
    const figure = make("figure", {}, make("figcaption", { className: "faint" }, title));
    figure.insertAdjacentHTML("beforeend", svg);
    elements.push(figure);
  }
  const featured = source.featured.map((id) => threads.find((thread) => thread.id === id));
  if (featured.length) {
    elements.push(make("h2", {}, "Rewards and verdicts disagree"));
    for (const thread of featured) {
      const name = [`step ${thread.step} · ${thread.question} `, ...verdictMarks(thread)];
      elements.push(make("p", {}, make("button", { type: "button", onclick: () => open(thread) }, ...name)));
    }
  }
  return [...elements, ...source.tables.map(tableElement)];
}

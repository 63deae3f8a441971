"use strict";
/* The report of each source: facts, figures, tables, and discussions worth a look. */

/** A table with a heading. */
function tableElement({ title, header, rows }) {
  const head = make("tr", {}, ...header.map((name) => make("th", {}, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, String(value)))));
  return make("div", {}, make("h2", {}, title), make("table", {}, head, ...body));
}

/** A drawing with its title, what its lines show, and how they are smoothed. */
function figureElement({ title, svg, caption, meanings }) {
  const { "": shared, ...ofLines } = meanings;
  const figure = make("figure", {}, make("figcaption", {}, make("strong", {}, title)));
  figure.insertAdjacentHTML("beforeend", svg); // Our own: no text of a model is in it.
  figure.append(make("p", { className: "caption" }, [shared && `${shared}.`, caption].filter(Boolean).join(" ")));
  const terms = Object.entries(ofLines).map(([label, text]) => make("p", {}, make("strong", {}, label), `: ${text}.`));
  if (terms.length) figure.append(make("details", { className: "caption" }, make("summary", {}, "What the lines are"), ...terms));
  return figure;
}

/** What each run came to, in a sentence. */
function resultElements(sources) {
  return sources.map((source) => make("p", { className: "result" },
    (sources.length > 1 && source.result ? `${source.name}: ` : "") + source.result));
}

/** Everything about one source. open: shows a thread. */
function reportElements(source, threads, open) {
  const elements = [make("h2", {}, source.path)];
  elements.push(make("div", { className: "figures" }, ...source.figures.map(figureElement)));
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

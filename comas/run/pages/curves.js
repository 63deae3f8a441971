"use strict";
/* Curves of metrics, those of all runs over each other. */

const CURVE = { width: 320, height: 130 };
const NUM_COLORS = 6;

/** An element of a drawing. */
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Which colour belongs to which run; nothing where there is but one. */
function legendElement(sources) {
  const names = sources.map((source, i) =>
    make("span", { className: `key run-${i % NUM_COLORS}` }, make("i", {}), source.name));
  return make("p", { className: "legend", hidden: sources.length < 2 }, ...names);
}

/** The curve of a metric in every source that has it. */
function curveElement(metric, sources) {
  const own = sources
    .map((source, number) => ({ number, name: source.name, points: pointsOf(source.rows, metric) }))
    .filter(({ points }) => points.length);
  const { width, height } = CURVE;
  const { curves, left, right, low, high } = placed(own.map(({ points }) => smooth(points)), width, height);
  const drawing = draw("svg", { viewBox: `-6 -6 ${width + 12} ${height + 12}`, role: "img" });
  drawing.setAttribute("aria-label", `${metric}, from ${short(low)} to ${short(high)}`);
  for (const [i, points] of curves.entries()) {
    const line = draw("g", { class: `run-${own[i].number % NUM_COLORS}` });
    line.append(draw("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") }));
    const dots = points.length > 4 * SMOOTHED_OVER ? points.slice(-1) : points;
    for (const [x, y] of dots) line.append(draw("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2.5 }));
    drawing.append(line);
  }
  const latest = own.map(({ number, name, points }) =>
    make("span", { className: `key run-${number % NUM_COLORS}`, title: name }, short(points.at(-1)[1])));
  return make(
    "figure",
    { className: "curve" },
    make("figcaption", {}, make("strong", {}, metric), " ", ...latest),
    drawing,
    make("div", { className: "axes" }, `steps ${left} to ${right}, values ${short(low)} to ${short(high)}`),
  );
}

/** The curves of `chosen` metrics that are there, and a list to choose another from. */
function curvesElement(sources, chosen, choose) {
  const metrics = metricsOf(sources);
  if (!metrics.length) return [];
  const options = metrics.filter((name) => !chosen.includes(name)).map((name) => make("option", { value: name }, name));
  const list = make("select", { id: "metric", onchange: (event) => choose(event.target.value) },
    make("option", { value: "" }, "another metric"), ...options);
  const shown = chosen.filter((name) => metrics.includes(name)).map((name) => curveElement(name, sources));
  return [make("h2", {}, "Curves ", list), legendElement(sources), make("div", { className: "curves" }, ...shown)];
}

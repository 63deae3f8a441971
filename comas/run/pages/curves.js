"use strict";
/* Curves of metrics, with all runs in one drawing. */

const CURVE = { width: 320, height: 130, margin: 54 };
const NUM_COLORS = 6;

/** Create an SVG element. */
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The colours of the runs, if there are several. */
function legendElement(sources) {
  const names = sources.map((source, i) =>
    make("span", { className: `key run-${i % NUM_COLORS}` }, make("i", {}), source.name));
  return make("p", { className: "legend", hidden: sources.length < 2 }, ...names);
}

/** Points as a line. */
function lineElement(points, name) {
  return draw("polyline", { class: name, points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") });
}

/** The lines of the axes with their numbers: steps below, values at the left. */
function axesElements({ left, right, low, high }) {
  const { width, height } = CURVE;
  const values = high > low ? [low, (low + high) / 2, high] : [low];
  const ticks = values.flatMap((value, i) => {
    const y = values.length > 1 ? height * (1 - i / 2) : height / 2;
    return [
      draw("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y }),
      draw("text", { x: -5, y: y + 3.5, "text-anchor": "end" }, shortTick(value)),
    ];
  });
  const y = height + 15;
  return [
    ...ticks,
    draw("text", { x: 0, y, "text-anchor": "start" }, `step ${left}`),
    draw("text", { x: width, y, "text-anchor": "end" }, String(right)),
  ];
}

/** A number with three significant digits. */
function shortTick(number) {
  return String(Number(number.toPrecision(3)));
}

/** The curves of a metric in every source that has it, with faint raw values behind the average. */
function curveElement(metric, sources, meanings) {
  const own = sources
    .map((source, number) => ({ number, name: source.name, points: pointsOf(source.rows, metric) }))
    .filter(({ points }) => points.length);
  const { width, height, margin } = CURVE;
  const axes = axesOf(own.flatMap(({ points }) => points), CURVE);
  const drawing = draw("svg", { viewBox: `${-margin} -8 ${width + margin + 8} ${height + 28}`, role: "img" }, ...axesElements(axes));
  drawing.setAttribute("aria-label", `${metric}, from ${short(axes.low)} to ${short(axes.high)}`);
  for (const { number, points } of own) {
    const line = draw("g", { class: `run-${number % NUM_COLORS}` });
    const places = smooth(points).map(axes.place);
    if (isSmoothed(points)) line.append(lineElement(points.map(axes.place), "raw"));
    line.append(lineElement(places, "smooth"));
    const dots = isSmoothed(points) ? places.slice(-1) : places;
    for (const [x, y] of dots) line.append(draw("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2.5 }));
    drawing.append(line);
  }
  const latest = own.map(({ number, name, points }) =>
    make("span", { className: `key run-${number % NUM_COLORS}`, title: name }, short(smooth(points).at(-1)[1])));
  const meaning = meaningOf(metric, meanings);
  return make(
    "figure",
    { className: "curve" },
    make("figcaption", { title: meaning }, make("strong", {}, metric), " ", ...latest),
    drawing,
    make("p", { className: "caption" }, meaning && `${meaning}.`),
  );
}

/** The curves of the `chosen` metrics, and a list of the others. */
function curvesElement(sources, chosen, meanings, choose) {
  const metrics = metricsOf(sources);
  if (!metrics.length) return [];
  const options = metrics.filter((name) => !chosen.includes(name)).map((name) =>
    make("option", { value: name, title: meaningOf(name, meanings) }, name));
  const list = make("select", { id: "metric", onchange: (event) => choose(event.target.value) },
    make("option", { value: "" }, "another metric"), ...options);
  const shown = chosen.filter((name) => metrics.includes(name)).map((name) => curveElement(name, sources, meanings));
  const said = `The horizontal axis is the step. Beyond ${4 * SMOOTHED_OVER} points, the line is the mean of ${SMOOTHED_OVER}, with the points faint behind it. The number is the end of the line.`;
  return [
    make("h2", {}, "Curves ", list),
    legendElement(sources),
    make("p", { className: "caption" }, said),
    make("div", { className: "curves" }, ...shown),
  ];
}

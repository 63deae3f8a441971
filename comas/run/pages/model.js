"use strict";
/* The data of the page and its filters, without any DOM. */

const TURN_FACETS = ["look for", "agent", "role", "verdict", "score"];
const FIELDS = { "look for": "signs", score: "scores" };

/** Decode base64, gzip and JSON. */
async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** All threads in one list, each with the number of its source. */
function allThreads(sources) {
  return sources.flatMap((source, number) =>
    source.threads.map((thread) => ({ ...thread, source: number, key: `${number}/${thread.id}` })),
  );
}

/** The filters: [name, sorted values], for names with several values. */
function facetsOf(threads, sources) {
  const values = new Map();
  const note = (name, value) => {
    if (value === null || value === undefined) return;
    if (!values.has(name)) values.set(name, new Set());
    values.get(name).add(value);
  };
  for (const thread of threads) {
    for (const turn of thread.turns) for (const sign of turn.signs) note("look for", sign);
    note("run", sources[thread.source].name);
    note("step", thread.step);
    note("domain", thread.domain);
    for (const [name, value] of Object.entries(thread.labels)) note(name, value);
    for (const turn of thread.turns) {
      for (const name of TURN_FACETS) for (const value of turnValues(turn, name)) note(name, value);
    }
  }
  const isChoice = ([name, of]) => of.size > (name === "look for" ? 0 : 1);
  const facets = [...values].filter(isChoice).map(([name, of]) => [name, [...of].sort(inOrder)]);
  return facets.sort(([one], [other]) => (other === "look for") - (one === "look for"));
}

function inOrder(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

/** The values of a turn under a facet; a solution may have several scores. */
function turnValues(turn, facet) {
  const value = turn[FIELDS[facet] ?? facet];
  return Array.isArray(value) ? value : [value];
}

/** The value of a thread under a facet of threads. */
function threadValue(thread, facet, sources) {
  if (facet === "run") return sources[thread.source].name;
  if (facet === "step" || facet === "domain") return thread[facet];
  return thread.labels[facet];
}

/**
 * Whether a turn fits the filter.
 * filter: { wanted: {facet: text}, rewardFrom, rewardTo: number or null, text }
 */
function turnFits(turn, filter) {
  const { rewardFrom, rewardTo } = filter;
  if ((rewardFrom !== null || rewardTo !== null) && turn.reward === null) return false;
  if (rewardFrom !== null && turn.reward < rewardFrom) return false;
  if (rewardTo !== null && turn.reward > rewardTo) return false;
  return TURN_FACETS.every((facet) => {
    const wanted = filter.wanted[facet];
    return !wanted || turnValues(turn, facet).some((value) => String(value) === wanted);
  });
}

/** Whether the filter restricts turns. */
function asksOfTurns(filter) {
  const asked = TURN_FACETS.some((facet) => filter.wanted[facet]);
  return asked || filter.rewardFrom !== null || filter.rewardTo !== null;
}

/** Whether a thread fits the filter: one single turn must meet all conditions on turns. */
function threadFits(thread, filter, sources) {
  for (const [facet, wanted] of Object.entries(filter.wanted)) {
    if (!wanted || TURN_FACETS.includes(facet)) continue;
    if (String(threadValue(thread, facet, sources)) !== wanted) return false;
  }
  if (asksOfTurns(filter) && !thread.turns.some((turn) => turnFits(turn, filter))) return false;
  const text = filter.text.toLowerCase();
  if (!text) return true;
  const texts = [thread.id, thread.question, ...thread.turns.flatMap((turn) => [turn.text, turn.thinking])];
  return texts.some((candidate) => candidate.toLowerCase().includes(text));
}

/** question -> its threads, in the order of runs and steps. */
function byQuestion(threads) {
  const groups = new Map();
  for (const thread of threads) {
    const group = groups.get(thread.question_key) ?? [];
    group.push(thread);
    groups.set(thread.question_key, group);
  }
  return groups;
}

/**
 * The threads to show beside a thread: its question in the nearest step of each other source, or
 * its last other occurrence if there is only one source.
 */
function besideOf(thread, occurrences) {
  const others = occurrences.filter((other) => other !== thread);
  const elsewhere = new Map();
  const distance = (other) => Math.abs((other.step ?? 0) - (thread.step ?? 0));
  for (const other of others.filter((each) => each.source !== thread.source)) {
    const known = elsewhere.get(other.source);
    if (!known || distance(other) < distance(known)) elsewhere.set(other.source, other);
  }
  return elsewhere.size ? [...elsewhere.values()].sort((a, b) => a.source - b.source) : others.slice(-1);
}

/** Add the news of a live run to its source; returns the new threads. */
function takeIn(source, number, news, known) {
  source.rows.push(...news.rows);
  source.live = news.live;
  source.notes = news.notes;
  if (news.featured) Object.assign(source, { featured: news.featured, result: news.result });
  const threads = news.threads.map((thread) => ({ ...thread, source: number, key: `${number}/${thread.id}` }));
  return threads.filter((thread) => !known.has(thread.key));
}

/* ---------------------------------------------------------------- curves */

const SHOWN_AT_FIRST = [
  "validation/greedy/accuracy", "validation/accuracy", "train/accuracy", "reward/solution",
  "reward/evaluation", "reward_effectiveness/from_score_2/balanced_accuracy",
  "reward_effectiveness/auc", "scoring/invalid_rate", "instruments/reliability",
  "interaction/truncated_rate", "response_length", "agent_0/policy/entropy", "agent_0/policy/kl",
  "time/step_s",
];
const SMOOTHED_OVER = 5;

/** The sorted names of all metrics with a value. */
function metricsOf(sources) {
  const names = new Set();
  for (const source of sources) {
    for (const row of source.rows) for (const name in row) if (row[name] !== null) names.add(name);
  }
  names.delete("step");
  return [...names].sort();
}

/** [step, value] of a metric in one source's rows. */
function pointsOf(rows, metric) {
  return rows.filter((row) => Number.isFinite(row[metric])).map((row) => [row.step, row[metric]]);
}

/** What a metric means, if known. meanings: [regex, text]. */
function meaningOf(metric, meanings) {
  return meanings.find(([regex]) => new RegExp(`^(?:${regex})$`).test(metric))?.[1] ?? "";
}

/** Whether there are enough points for a moving average. */
function isSmoothed(points) {
  return points.length > 4 * SMOOTHED_OVER;
}

/** The moving average; few points stay as they are. */
function smooth(points) {
  if (!isSmoothed(points)) return points;
  return points.map(([step], i) => {
    const own = points.slice(Math.max(0, i + 1 - SMOOTHED_OVER), i + 1);
    return [step, own.reduce((sum, [, value]) => sum + value, 0) / own.length];
  });
}

/** Axes that hold all points, and the function that places a point in a box. */
function axesOf(points, { width, height }) {
  const spread = (of) => [of.reduce((a, b) => Math.min(a, b)), of.reduce((a, b) => Math.max(a, b))];
  const [[left, right], [low, high]] = [spread(points.map(([x]) => x)), spread(points.map(([, y]) => y))];
  const share = (value, from, to) => (to > from ? (value - from) / (to - from) : 0.5);
  const place = ([x, y]) => [width * share(x, left, right), height * (1 - share(y, low, high))];
  return { place, left, right, low, high };
}

/** The range of list rows that are visible, with a margin. */
function rowsInSight({ scrollTop, height, rowHeight, count, margin = 10 }) {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - margin);
  const end = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + margin);
  return [first, end];
}

"use strict";
/* What the page holds and which of it is shown. No DOM here: tests run this file alone. */

const TURN_FACETS = ["look for", "agent", "role", "verdict", "score"];
const FIELDS = { "look for": "signs", score: "scores" };

/** The JSON value in a gzip member in base64. */
async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** All threads of all sources in one list, each with the number of its source. */
function allThreads(sources) {
  return sources.flatMap((source, number) =>
    source.threads.map((thread) => ({ ...thread, source: number, key: `${number}/${thread.id}` })),
  );
}

/** What can be filtered by: name -> the values there are, where there are several. */
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

/** The values of a turn under a facet: a solution that was scored twice has two scores. */
function turnValues(turn, facet) {
  const value = turn[FIELDS[facet] ?? facet];
  return Array.isArray(value) ? value : [value];
}

/** The value of a thread under a facet that is not one of turns. */
function threadValue(thread, facet, sources) {
  if (facet === "run") return sources[thread.source].name;
  if (facet === "step" || facet === "domain") return thread[facet];
  return thread.labels[facet];
}

/**
 * Whether a turn is what the filter asks of turns.
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

/** Whether the filter asks anything of turns. */
function asksOfTurns(filter) {
  const asked = TURN_FACETS.some((facet) => filter.wanted[facet]);
  return asked || filter.rewardFrom !== null || filter.rewardTo !== null;
}

/** Whether one turn of the thread fits in every respect, and the thread in all others. */
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

/** question -> the threads about it, in the order of runs and steps. */
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
 * What stands beside a thread: of each other source the occurrence of its question in the nearest
 * step; where there is but one source, the last other one.
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

/** Put what is new of a followed run to what is known of it; returns the threads that are new. */
function takeIn(source, number, news, known) {
  source.rows.push(...news.rows);
  source.live = news.live;
  source.notes = news.notes;
  if (news.tables) Object.assign(source, { tables: news.tables, featured: news.featured, result: news.result });
  const threads = news.threads.map((thread) => ({ ...thread, source: number, key: `${number}/${thread.id}` }));
  return threads.filter((thread) => !known.has(thread.key));
}

/* ---------------------------------------------------------------- curves */

const SHOWN_AT_FIRST = [
  "validation/greedy/accuracy", "validation/accuracy", "train/accuracy", "reward/solution",
  "reward/evaluation", "reward_effectiveness/from_score_2/balanced_accuracy",
  "scoring/invalid_rate", "scoring/false_accusations_accepted", "instruments/reliability",
  "interaction/truncated_rate", "response_length", "agent_0/policy/entropy", "agent_0/policy/kl",
  "time/step_s",
];
const SMOOTHED_OVER = 5;

/** All metrics that a source has a number of, by name. */
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

/** What a metric means; empty: nothing is known. meanings: [regex, text]. */
function meaningOf(metric, meanings) {
  return meanings.find(([regex]) => new RegExp(`^(?:${regex})$`).test(metric))?.[1] ?? "";
}

/** Whether there are so many points that the curve is their mean over steps. */
function isSmoothed(points) {
  return points.length > 4 * SMOOTHED_OVER;
}

/** Each value as the mean of itself and those before it; few points stay as they are. */
function smooth(points) {
  if (!isSmoothed(points)) return points;
  return points.map(([step], i) => {
    const own = points.slice(Math.max(0, i + 1 - SMOOTHED_OVER), i + 1);
    return [step, own.reduce((sum, [, value]) => sum + value, 0) / own.length];
  });
}

/** A place for each point in a box, by axes that hold all points; and these axes. */
function axesOf(points, { width, height }) {
  const spread = (of) => [of.reduce((a, b) => Math.min(a, b)), of.reduce((a, b) => Math.max(a, b))];
  const [[left, right], [low, high]] = [spread(points.map(([x]) => x)), spread(points.map(([, y]) => y))];
  const share = (value, from, to) => (to > from ? (value - from) / (to - from) : 0.5);
  const place = ([x, y]) => [width * share(x, left, right), height * (1 - share(y, low, high))];
  return { place, left, right, low, high };
}

/** Which rows of a list are near what is in sight. */
function rowsInSight({ scrollTop, height, rowHeight, count, margin = 10 }) {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - margin);
  const end = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + margin);
  return [first, end];
}

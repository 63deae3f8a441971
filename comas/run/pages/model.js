"use strict";
/* What the page holds and which of it is shown. No DOM here: tests run this file alone. */

const TURN_FACETS = ["agent", "role", "verdict", "score"];

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
    note("run", sources[thread.source].name);
    note("step", thread.step);
    note("domain", thread.domain);
    for (const [name, value] of Object.entries(thread.labels)) note(name, value);
    for (const turn of thread.turns) {
      for (const name of TURN_FACETS) for (const value of turnValues(turn, name)) note(name, value);
    }
  }
  return [...values].filter(([, of]) => of.size > 1).map(([name, of]) => [name, [...of].sort(inOrder)]);
}

function inOrder(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

/** The values of a turn under a facet: a solution that was scored twice has two scores. */
function turnValues(turn, facet) {
  const value = facet === "score" ? turn.scores : turn[facet];
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
  const texts = [thread.id, thread.question, ...thread.turns.map((turn) => turn.text)];
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

/** Which rows of a list are near what is in sight. */
function rowsInSight({ scrollTop, height, rowHeight, count, margin = 10 }) {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - margin);
  const end = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + margin);
  return [first, end];
}

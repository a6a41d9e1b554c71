import assert from "node:assert/strict";
import { test } from "node:test";
import { text } from "./controls/export.js";
import {
  applyEvent, wordsBehind, captions, delays, empty, addSourceWord, meanLag, readInSentence, timeline, visibleSource,
} from "./text/model.js";
import { corners, ticks } from "./view/staircase.js";

const word = (text, delay, arrived = 0) => ({ type: "word", text, delay, arrived });
const step = (state, event) => (typeof event === "string" ? addSourceWord(state, event, 1000) : applyEvent(state, event));
const all = (...events) => events.reduce(step, empty);
const end = (source) => ({ type: "end", source });

test("words are addSourceWord, read, written; a state is never changed", () => {
  const before = all("good", "morning", { type: "read", source: 1 });
  const state = applyEvent(before, word("guten", 1));
  assert.deepEqual([before.words.length, readInSentence(before), wordsBehind(before)], [0, 1, 2]);
  assert.deepEqual([state.words.length, readInSentence(state), wordsBehind(state)], [1, 1, 1]);
  assert.equal(addSourceWord(state, "", 5), state, "the end of a sentence is not a word");
  assert.deepEqual(empty.source, []);
});

test("source words after the end of a sentence belong to the next", () => {
  const state = all("a", "b.", "c", { type: "read", source: 2 }, word("A", 1), word("B", 2), end(2));
  const words = [{ text: "A", delay: 1, arrived: 0 }, { text: "B", delay: 2, arrived: 0 }];
  assert.deepEqual(state.past, [{ source: ["a", "b."], words, lag: 1, time: -1 }]);
  assert.deepEqual([state.source, state.words, state.before, readInSentence(state)], [["c"], [], 2, 0]);
  assert.equal(readInSentence(applyEvent(state, { type: "read", source: 1 })), 0, "it does not decrease");
});

test("of a long paste the current sentence is shown, or some words ahead", () => {
  const long = Array.from({ length: 100 }, (_, n) => `w${n}`);
  const state = all("a", "b.", "c", "d.", { type: "read", source: 1 });
  assert.deepEqual(visibleSource(state), { shown: ["a", "b."], more: 2 });
  assert.deepEqual(visibleSource(all(...long)), { shown: long.slice(0, 40), more: 60 });
  const later = applyEvent(all(...long), { type: "read", source: 30 });
  assert.deepEqual(visibleSource(later), { shown: long.slice(0, 70), more: 30 });
  assert.deepEqual(visibleSource(empty), { shown: [], more: 0 });
});

test("the mean lag leaves out sentences without a translation", () => {
  const state = all("a", end(1), "b", word("B", 1), end(2));
  assert.deepEqual(state.past.map(({ lag }) => lag), [null, 1]);
  assert.equal(meanLag(state), 1);
  assert.equal(meanLag(empty), null);
});

test("text, captions and timeline", () => {
  let state = all("a", word("A", 1, 1250), word(".", 1, 1250.4), end(1), "b", word("B", 1, 3000));
  assert.equal(text(timeline(state)), "A.\nB\n");
  const times = [{ text: "A", at: 250 }, { text: ".", at: 250 }, null, { text: "B", at: 2000 }];
  assert.deepEqual(timeline(state), times);
  assert.deepEqual(captions(state), { first: 0, lines: [["A", "."], ["B"]] });
  for (let n = 2; n < 7; n += 1) state = applyEvent(state, end(n));
  assert.equal(captions(state).first, 3);
  assert.equal(captions(state).lines.length, 4);
});

test("the staircase: right for each word read, up for each word written", () => {
  assert.deepEqual(corners([], 0), [[0, 0], [0, 0]]);
  const state = all("a", "b", "c", { type: "read", source: 3 }, word("A", 1), word("B", 1), word("C", 2));
  assert.deepEqual(corners(delays(state.words), readInSentence(state)), [
    [0, 0], [1, 0], [1, 1], [1, 1], [1, 2], [2, 2], [2, 3], [3, 3],
  ]);
  assert.deepEqual(ticks(8), [2, 4, 6, 8]);
  for (let most = 1; most < 500; most += 1) {
    assert.ok(ticks(most).length <= 5 && ticks(most).every((tick) => tick <= most));
  }
});

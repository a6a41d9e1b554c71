import assert from "node:assert/strict";
import { test } from "node:test";
import { after, behind, captions, delays, empty, heard, meanLag, readNow, timeline, translation } from "./model.js";
import { corners, ticks } from "./staircase.js";

const word = (text, delay, arrived = 0) => ({ type: "word", text, delay, arrived });
const step = (state, event) => (typeof event === "string" ? heard(state, event, 1000) : after(state, event));
const all = (...events) => events.reduce(step, empty);
const end = (source) => ({ type: "end", source });

test("words are heard, read, written; a state is never changed", () => {
  const before = all("good", "morning", { type: "read", source: 1 });
  const state = after(before, word("guten", 1));
  assert.deepEqual([before.words.length, readNow(before), behind(before)], [0, 1, 2]);
  assert.deepEqual([state.words.length, readNow(state), behind(state)], [1, 1, 1]);
  assert.equal(heard(state, "", 5), state, "an end is no word");
  assert.deepEqual(empty.source, []);
});

test("what was said after a sentence's end belongs to the next one", () => {
  const state = all("a", "b.", "c", { type: "read", source: 2 }, word("A", 1), word("B", 2), end(2));
  const words = [{ text: "A", delay: 1, arrived: 0 }, { text: "B", delay: 2, arrived: 0 }];
  assert.deepEqual(state.past, [{ source: ["a", "b."], words, lag: 1 }]);
  assert.deepEqual([state.source, state.words, state.before, readNow(state)], [["c"], [], 2, 0]);
  assert.equal(readNow(after(state, { type: "read", source: 1 })), 0, "an earlier number changes nothing");
});

test("the mean lag leaves out sentences without a translation", () => {
  const state = all("a", end(1), "b", word("B", 1), end(2));
  assert.deepEqual(state.past.map(({ lag }) => lag), [null, 1]);
  assert.equal(meanLag(state), 1);
  assert.equal(meanLag(empty), null);
});

test("what is copied, captioned and written to subtitles", () => {
  let state = all("a", word("A", 1, 1250), word(".", 1, 1250.4), end(1), "b", word("B", 1, 3000));
  assert.equal(translation(state), "A.\nB\n");
  const times = [{ text: "A", at: 250 }, { text: ".", at: 250 }, null, { text: "B", at: 2000 }];
  assert.deepEqual(timeline(state), times);
  assert.deepEqual(captions(state), { first: 0, lines: [["A", "."], ["B"]] });
  for (let n = 2; n < 7; n += 1) state = after(state, end(n));
  assert.equal(captions(state).first, 3);
  assert.equal(captions(state).lines.length, 4);
});

test("a staircase goes right for each word read and up for each word written", () => {
  assert.deepEqual(corners([], 0), [[0, 0], [0, 0]]);
  const state = all("a", "b", "c", { type: "read", source: 3 }, word("A", 1), word("B", 1), word("C", 2));
  assert.deepEqual(corners(delays(state.words), readNow(state)), [
    [0, 0], [1, 0], [1, 1], [1, 1], [1, 2], [2, 2], [2, 3], [3, 3],
  ]);
  assert.deepEqual(ticks(8), [2, 4, 6, 8]);
  for (let most = 1; most < 500; most += 1) {
    assert.ok(ticks(most).length <= 5 && ticks(most).every((tick) => tick <= most));
  }
});

// Watchers: words in order, connections that break, files.

import assert from "node:assert/strict";
import { test } from "node:test";
import { text } from "./controls/export.js";
import { srt } from "./text/subtitles.js";
import { Watch, sentences, timeline } from "./network/watching.js";

function begin() {
  const page = { sockets: [], timers: [], changes: [] };
  const openSocket = (url) => {
    page.sockets.push({ url });
    return page.sockets.at(-1);
  };
  const setTimer = (call) => page.timers.push(call);
  page.watch = new Watch({ url: "ws://host/v1/watch/talk", onChange: (words) => page.changes.push(words), openSocket, setTimer });
  page.watch.connect();
  page.send = (message) => page.sockets.at(-1).onmessage({ data: JSON.stringify(message) });
  page.commit = (first, ...words) =>
    page.send({
      type: "commit", first, cursor: `c.${first + words.length}`,
      words: words.map(([word, sentence, time]) => ({ text: word, sentence, time })),
    });
  return page;
}

const model = { name: "en-vi", source: "en", target: "vi" };

test("words are collected, and go on after a broken connection", () => {
  const page = begin();
  assert.equal(page.sockets[0].url, "ws://host/v1/watch/talk?after=");
  page.send({ type: "ready", name: "talk", channel: "c", live: false, model: null });
  assert.equal(page.watch.state, "waiting");
  page.send({ type: "ready", name: "talk", channel: "c", live: true, model });
  page.commit(0, ["a", 0, 1], ["b", 0, 2]);
  assert.equal(page.watch.state, "live");
  const { words } = page.watch;
  page.sockets[0].onclose();
  assert.equal(page.watch.state, "reconnecting");
  page.timers.pop()();
  assert.equal(page.sockets[1].url, "ws://host/v1/watch/talk?after=c.2");
  page.send({ type: "ready", name: "talk", channel: "c", live: true, model });
  page.commit(2, ["c", 1, 3]);
  assert.equal(page.watch.words, words, "they continue");
  assert.deepEqual(sentences(words), [["a", "b"], ["c"]]);
  assert.deepEqual(page.changes.flat().map((word) => word.text), ["a", "b", "c"]);
});

test("another talk begins anew", () => {
  const page = begin();
  page.send({ type: "ready", name: "talk", channel: "c", live: true, model });
  page.commit(0, ["a", 0, 1], ["b", 0, 2]);
  page.commit(0, ["x", 0, 1]);
  assert.deepEqual(sentences(page.watch.words), [["x"]]);
  page.commit(500, ["y", 9, 1]); // the server keeps the last words only
  page.commit(501, ["z", 9, 1]);
  assert.deepEqual(sentences(page.watch.words), [["y", "z"]]);
});

test("an error for which a new connection is no help", () => {
  const page = begin();
  page.send({ type: "error", code: "protocol", message: "the name …", fatal: true });
  page.sockets[0].onclose();
  assert.deepEqual([page.watch.state, page.watch.error, page.timers.length], ["stopped", "the name …", 0]);
  const other = begin();
  other.send({ type: "error", code: "shutdown", message: "…", fatal: true });
  other.sockets[0].onclose();
  assert.deepEqual([other.watch.state, other.timers.length], ["reconnecting", 1]);
});

test("files", () => {
  const words = [["Hi", 4, 10], [".", 4, 10.5], ["You", 6, 12.25]].map(([word, sentence, time]) => ({
    text: word, sentence, time,
  }));
  assert.equal(text(timeline(words)), "Hi.\nYou\n");
  assert.ok(srt(timeline(words)).startsWith("1\n00:00:00,000 --> 00:00:01,500\nHi .\n\n2\n00:00:02,250 -->"));
});

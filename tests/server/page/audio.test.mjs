// Audio to the server: what is kept, what is sent again, and when the microphone is closed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AudioJournal } from "./network/audio.js";
import { Connection } from "./network/connection.js";
import { Microphone } from "./speech/microphone.js";
import { RATE } from "./speech/recorder.js";

const block = (value, length = RATE / 10) => new Int16Array(length).fill(value);
const frames = (journal) => {
  const found = [];
  for (let frame; (frame = journal.nextFrame()) !== null; ) found.push(frame);
  return found;
};
const values = (journal) => frames(journal).map((frame) => [frame[0], frame.length]);

test("audio is sent in order, a few seconds ahead of the recogniser, and then its end", () => {
  const journal = new AudioJournal();
  for (let n = 1; n <= 60; n += 1) assert.ok(journal.add(block(n)));
  assert.deepEqual(frames(journal), [], "no session");
  assert.deepEqual(journal.startSession(), { type: "listen", said: "" });
  assert.deepEqual(values(journal).map(([value]) => value), Array.from({ length: 50 }, (_, n) => n + 1));
  assert.equal(journal.pending, 5 * RATE);
  journal.end();
  assert.ok(!journal.add(block(0)));
  journal.heard({ audio: 5 * RATE, settled: RATE, said: "" });
  assert.deepEqual(values(journal), [...Array.from({ length: 10 }, (_, n) => [n + 51, 1600]), [undefined, 0]]);
  assert.deepEqual(frames(journal), [], "one end");
});

test("after a lost connection the audio without final words is sent again", () => {
  const journal = new AudioJournal();
  journal.startSession();
  for (const n of [1, 2, 3, 4]) journal.add(block(n));
  frames(journal);
  journal.heard({ audio: 4800, settled: 2000, said: "and so" });
  journal.pause();
  journal.add(block(5));
  assert.deepEqual(frames(journal), []);
  assert.deepEqual(journal.startSession(), { type: "listen", said: "and so" });
  assert.deepEqual(values(journal), [[2, 1200], [3, 1600], [4, 1600], [5, 1600]]);
  journal.heard({ audio: 6000, settled: 6000, said: "" });
  journal.startSession();
  assert.deepEqual(frames(journal), [], "all of it is final");
});

test("a minute is kept for the recogniser; what it has recognised does not count", () => {
  const journal = new AudioJournal();
  journal.startSession();
  const fill = () => {
    let count = 0;
    while (journal.add(block(1))) count += 1;
    return count;
  };
  assert.equal(fill(), 600);
  frames(journal);
  journal.heard({ audio: 3 * RATE, settled: 0, said: "" });
  assert.equal(fill(), 30);
});

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** A connection; the test answers for the server, whose `received` has listen messages and lengths of frames. */
async function connect() {
  const page = { sockets: [], events: [], timers: [] };
  const openSocket = () => {
    const socket = { received: [], close() {} };
    socket.answer = (message) => socket.onmessage({ data: JSON.stringify(message) });
    socket.send = (data) => {
      const message = typeof data === "string" ? JSON.parse(data) : { type: "audio", length: data.length };
      if (message.type === "start") return socket.answer({ type: "ready", model: {}, latencies: [] });
      socket.received.push(message.type === "audio" ? data.length : message);
    };
    page.sockets.push(socket);
    queueMicrotask(() => socket.onopen());
    return socket;
  };
  page.connection = new Connection({
    url: "ws://here", latency: "low", onEvent: (event) => page.events.push(event), openSocket, random: () => 1,
    setTimer: (call, pause) => (page.timers.push({ call, pause }), page.timers.at(-1)),
    clearTimer: (timer) => (page.timers = page.timers.filter((other) => other !== timer)),
  });
  page.next = async () => {
    const timers = page.timers.splice(0);
    timers.forEach(({ call }) => call());
    await settle();
    return timers.map(({ pause }) => pause);
  };
  page.connection.listen();
  await settle();
  page.answer = (message) => page.sockets.at(-1).answer(message);
  page.heard = (audio, settled, said, end = false) =>
    page.answer({ type: "heard", words: [], partial: "", audio, settled, said, end });
  page.received = () => page.sockets.at(-1).received;
  return page;
}
const listen = (said) => ({ type: "listen", said });

test("a connection sends audio, and again after it is lost", async () => {
  const page = await connect();
  page.connection.sendAudio(block(1));
  page.heard(0, 0, "");
  page.connection.sendAudio(block(2));
  assert.deepEqual(page.received(), [listen(""), 1600, 1600]);
  page.heard(3200, 1600, "one");
  page.sockets.at(-1).onclose();
  page.connection.sendAudio(block(3));
  page.connection.endAudio();
  assert.ok(page.connection.hearing);
  await page.next();
  assert.deepEqual(page.received(), [listen("one"), 1600, 1600, 0]);
  page.heard(3200, 3200, "", true);
  assert.ok(!page.connection.hearing);
  assert.equal(page.events.filter(({ type }) => type === "heard").length, 3);
});

test("a speaker whose lost connection still counts tries again; one who never was heard is told", async () => {
  const page = await connect();
  const full = { type: "error", code: "too_many_speakers", message: "no", fatal: false };
  page.heard(0, 0, "");
  page.connection.sendAudio(block(1));
  page.sockets.at(-1).onclose();
  await page.next();
  page.answer(full);
  page.connection.sendAudio(block(2));
  assert.deepEqual(page.received(), [listen(""), 1600], "it waits");
  assert.deepEqual(await page.next(), [3000]);
  assert.deepEqual(page.received(), [listen(""), 1600, listen(""), 1600, 1600]);
  assert.ok(!page.events.some(({ type }) => type === "error"));
  const other = await connect();
  other.answer(full);
  other.connection.sendAudio(block(1));
  assert.deepEqual([other.received(), other.events.at(-1)], [[listen("")], full]);
});

test("a server that does not answer, and one that is started anew", async () => {
  const page = await connect();
  page.heard(0, 0, "");
  for (let n = 0; n < 5; n += 1) page.connection.sendAudio(block(n));
  assert.deepEqual(await page.next(), [15000], "the pause counts from the first frame");
  assert.deepEqual(await page.next(), [300]);
  assert.deepEqual(page.received(), [listen(""), ...Array(5).fill(1600)]);
  page.connection.reset();
  await settle();
  page.connection.sendAudio(block(9));
  assert.deepEqual(page.received(), [listen(""), 1600], "without the audio before");
});

/** A microphone whose device the test opens or refuses. */
function begin() {
  const page = { sent: [], ends: [], notes: [], closed: 0, kept: true };
  const connection = {
    listen: () => page.sent.push("listen"),
    sendAudio: (data) => (page.sent.push(data), page.kept),
    endAudio: () => page.sent.push("end"),
  };
  const open = (events) => {
    page.device = events;
    return new Promise((resolve, reject) => Object.assign(page, { resolve, reject }));
  };
  const onEnd = (reason) => page.ends.push(reason);
  page.microphone = new Microphone({ connection, onEnd, onNote: (text) => page.notes.push(text), open });
  page.started = page.microphone.start();
  page.allow = async () => {
    page.resolve(() => (page.closed += 1));
    await page.started;
  };
  return page;
}

test("a microphone is opened, unplugged, and opened again", async () => {
  const page = begin();
  assert.ok(page.microphone.listening);
  await page.allow();
  page.device.onBlock(1);
  page.kept = false;
  page.device.onBlock(2);
  page.device.onBlock(3);
  page.device.onGone();
  page.device.onBlock(4);
  assert.deepEqual(page.sent, ["listen", 1, 2, 3, "end"]);
  assert.equal(page.notes.length, 1, "one message that audio is lost");
  assert.match(page.ends[0], /no audio any more/u);
  assert.deepEqual([page.closed, page.microphone.listening], [1, false]);
  page.microphone.stop();
  assert.equal(page.ends.length, 1);
});

test("permission denied, no microphone, and stopped before permission is given", async () => {
  for (const [name, reason] of [["NotAllowedError", /allow it/u], ["NotFoundError", /No microphone/u], ["X", /why/u]]) {
    const page = begin();
    page.reject(Object.assign(new Error("why"), { name }));
    await page.started;
    assert.match(page.ends[0], reason);
    assert.deepEqual([page.sent, page.microphone.listening], [["listen", "end"], false]);
  }
  const page = begin();
  page.microphone.stop();
  await page.allow();
  assert.deepEqual([page.ends, page.closed, page.microphone.listening], [[""], 1, false]);
});

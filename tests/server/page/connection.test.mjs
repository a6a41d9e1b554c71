// The connection, with a server that translates words into capitals, two words late, and connections that break.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection } from "./network/connection.js";

/** One session: a word is written two words later, or when the sentence ends (at a full stop or by finish). */
class Server {
  constructor(socket) {
    Object.assign(this, { socket, seq: 0, expected: 1, sentence: 0, before: 0, words: [], written: 0, received: [] });
  }

  send(message) {
    this.seq += 1;
    this.socket.onmessage({ data: JSON.stringify({ ...message, seq: this.seq, time: 0 }) });
  }

  receive(message) {
    if (message.type === "start") {
      this.start = message;
      const ready = { type: "ready", session: "s", latency: "wait-3", latencies: [], model: {}, limits: {} };
      // A published session: the number of its first sentence, after those of another speaker.
      return this.send(message.key ? { ...ready, sentence: message.sentence ?? 10 } : ready);
    }
    assert.equal(message.seq, this.expected, "messages are counted without a gap");
    this.expected += 1;
    const finish = message.type === "finish";
    if (!finish) this.words.push(message.text);
    this.received.push(finish ? "" : message.text);
    const over = this.words.length > 0 && (finish || message.text.endsWith("."));
    const ready = over ? this.words.length : Math.max(this.written, this.words.length - 2);
    const read = this.words.length;
    const words = this.words.slice(this.written, ready).map((text) => ({
      text: text.toUpperCase(), sentence: this.sentence, source: this.before + read, delay: read,
    }));
    this.written = ready;
    const ends = [];
    if (over) {
      this.before += read;
      ends.push({ sentence: this.sentence, source: this.before, length: read });
      Object.assign(this, { sentence: this.sentence + 1, words: [], written: 0 });
    }
    this.send({ type: "commit", ack: message.seq, words, ends });
    if (finish) this.send({ type: "final", ack: message.seq });
  }
}

/** A connection, its sockets, events and timers, which the test runs. */
function begin(options = {}) {
  const page = { sockets: [], events: [], timers: [], up: true };
  const openSocket = (url) => {
    const socket = {
      url,
      closed: false,
      send(text) {
        assert.ok(!this.closed);
        if (!page.silent) this.server.receive(JSON.parse(text));
      },
      close() {
        this.closed = true;
      },
    };
    socket.server = new Server(socket);
    page.sockets.push(socket);
    if (page.up) queueMicrotask(() => socket.onopen());
    else queueMicrotask(() => socket.onclose());
    return socket;
  };
  page.connection = new Connection({
    url: "ws://here", latency: "low", onEvent: (event) => page.events.push(event), openSocket, random: () => 1,
    setTimer(call, pause) {
      const timer = { call, pause };
      page.timers.push(timer);
      return timer;
    },
    clearTimer: (timer) => (page.timers = page.timers.filter((other) => other !== timer)),
    ...options,
  });
  page.states = () => page.events.filter(({ type }) => type === "state").map(({ state }) => state);
  page.words = () => page.events.filter(({ type }) => type === "word");
  page.break = () => {
    page.sockets.at(-1).closed = true;
    page.sockets.at(-1).onclose();
  };
  page.wait = async () => {
    page.timers.pop().call();
    await settle();
  };
  page.now = 0;
  page.send = (text) => text.split(" ").forEach((word) => page.connection.send(word, (page.now += 100)));
  return page;
}

const settle = () => new Promise((done) => setImmediate(done));
const texts = (events) => events.map(({ text }) => text).join(" ");

test("words before the connection is ready are sent when it is", async () => {
  const page = begin({ token: "secret" });
  page.send("a b c");
  assert.equal(page.words().length, 0);
  await settle();
  assert.deepEqual(page.sockets[0].server.start, { type: "start", latency: "low", token: "secret" });
  assert.deepEqual(page.states(), ["connecting", "open"]);
  assert.equal(texts(page.words()), "A");
  assert.deepEqual(page.events.filter(({ type }) => type === "read").map(({ source }) => source), [1, 2, 3]);
});

test("after a restart the current sentence is sent again, and no word is shown twice", async () => {
  const page = begin();
  page.send("one. a b c d");
  await settle();
  assert.equal(texts(page.words()), "ONE. A B");
  page.break();
  page.send("e"); // while there is no server
  assert.equal(page.sockets.length, 1, "a word does not shorten the delay");
  assert.equal(page.states().at(-1), "reconnecting");
  await page.wait();
  assert.deepEqual(page.sockets.at(-1).server.received, ["a", "b", "c", "d", "e"]);
  page.send("f.");
  assert.equal(texts(page.words()), "ONE. A B C D E F.");
  assert.deepEqual(page.words().map(({ source }) => source), [1, 4, 5, 6, 7, 7, 7], "counted over both sessions");
  assert.deepEqual(page.words().map(({ delay }) => delay), [1, 3, 4, 5, 6, 6, 6]);
  assert.deepEqual(page.words().map(({ sentence }) => sentence), [0, 1, 1, 1, 1, 1, 1]);
  const ends = page.events.filter(({ type }) => type === "end");
  assert.deepEqual(ends, [
    { type: "end", sentence: 0, source: 1, length: 1 },
    { type: "end", sentence: 1, source: 7, length: 6 },
  ]);
});

test("connections that break anywhere give the words of one that does not break", async () => {
  const script = ["a", "b", "c.", "", "d", "e", "", "f", "g", "h", "i", "j.", "k", ""];
  const run = async (breaks) => {
    const page = begin();
    page.connection.connect();
    await settle();
    for (const [n, word] of script.entries()) {
      page.send(word);
      if (breaks.includes(n)) {
        page.break();
        await page.wait();
      }
    }
    await settle();
    return page.events.filter(({ type }) => ["word", "end"].includes(type));
  };
  const wanted = await run([]);
  assert.equal(texts(wanted.filter(({ type }) => type === "word")), "A B C. D E F G H I J. K");
  for (let first = 0; first < script.length; first += 1) {
    for (let second = first; second < script.length; second += 1) {
      assert.deepEqual(await run([first, second]), wanted, `broken after ${first} and ${second}`);
    }
  }
});

test("words that were sent but not answered are sent again", async () => {
  const page = begin();
  page.send("a b c d");
  await settle();
  page.silent = true;
  page.send("e f");
  page.break();
  page.silent = false;
  await page.wait();
  assert.deepEqual(page.sockets[1].server.received, ["a", "b", "c", "d", "e", "f"]);
  assert.equal(texts(page.words()), "A B C D");
  assert.deepEqual(page.words().map(({ arrived }) => arrived), [300, 400, 500, 600], "times of the source words");
});

test("delays grow without a server, and are short again after a success", async () => {
  const page = begin();
  page.up = false;
  page.connection.connect();
  const pauses = [];
  for (let n = 0; n < 6; n += 1) {
    await settle();
    pauses.push(page.timers.at(-1).pause);
    page.timers.pop().call();
  }
  await settle();
  assert.deepEqual(pauses, [300, 600, 1200, 2500, 5000, 5000]);
  page.up = true;
  await page.wait();
  page.send("a");
  page.break();
  assert.equal(page.timers.pop().pause, 300);
});

test("another latency is sent to this session and the next", async () => {
  const page = begin();
  page.connection.connect();
  page.connection.setLatency("high"); // before it is open
  await settle();
  assert.equal(page.sockets[0].server.start.latency, "high");
  page.connection.setLatency("medium");
  assert.equal(page.sockets[0].server.start.latency, "medium");
  assert.deepEqual(page.states(), ["connecting", "open"]);
  page.break();
  await page.wait();
  assert.equal(page.sockets[1].server.start.latency, "medium");
});

test("after idle the next word opens a session", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.sockets[0].server.send({ type: "error", code: "idle", message: "nothing came", fatal: true });
  page.break();
  assert.deepEqual(page.states().at(-1), "idle");
  assert.equal(page.timers.length, 0);
  page.send("a.");
  await settle();
  assert.equal(texts(page.words()), "A.");
});

test("after a final error there is no retry, except with another token", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.sockets[0].server.send({ type: "error", code: "unauthorized", message: "give a token", fatal: true });
  page.break();
  assert.deepEqual(page.states().at(-1), "stopped");
  assert.equal(page.events.find(({ type }) => type === "error").message, "give a token");
  assert.equal(page.timers.length, 0);
  page.connection.setToken("secret");
  await settle();
  assert.equal(page.sockets[1].server.start.token, "secret");
});

test("an unknown latency becomes the default", async () => {
  const page = begin({ latency: "lwo" });
  const receive = Server.prototype.receive;
  Server.prototype.receive = function (message) {
    if (message.latency !== "lwo") return receive.call(this, message);
    this.send({ type: "error", code: "protocol", message: "no latency lwo", fatal: false });
  };
  page.connection.connect();
  await settle();
  Server.prototype.receive = receive;
  assert.equal(page.events.find(({ type }) => type === "error").message, "no latency lwo");
  assert.equal(page.states().at(-1), "open");
  assert.equal(page.connection.latency, "medium");
});

test("a connection without an answer is replaced", async () => {
  const page = begin();
  page.send("a b c");
  await settle();
  assert.equal(page.timers.length, 0, "all is acknowledged");
  page.silent = true;
  page.send("d");
  assert.deepEqual(page.timers.map(({ pause }) => pause), [15000]);
  page.silent = false;
  page.timers[0].call();
  assert.equal(page.states().at(-1), "reconnecting");
  await page.wait();
  assert.equal(texts(page.words()), "A B");
  assert.equal(page.sockets.length, 2);
});

test("after a reset nothing of the old session remains", async () => {
  const page = begin();
  page.send("a b c");
  await settle();
  const old = page.sockets[0];
  page.connection.reset();
  await settle();
  const count = page.events.length;
  old.server.receive({ type: "words", seq: 4, text: "late" });
  assert.equal(page.events.length, count);
  page.send("x y z");
  const wanted = { type: "word", text: "X", sentence: 0, source: 3, delay: 3, arrived: 600 };
  assert.deepEqual(page.words().at(-1), wanted);
});

test("the number of unacknowledged messages is limited", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.silent = true;
  const sent = [];
  page.sockets[0].send = (text) => sent.push(JSON.parse(text));
  for (let n = 0; n < 1000; n += 1) page.send("a");
  assert.equal(sent.length, 256);
  page.sockets[0].server.send({ type: "commit", ack: 100, words: [], ends: [] });
  assert.equal(sent.length, 356);
  assert.deepEqual(sent.map(({ seq }) => seq), Array.from({ length: 356 }, (_, n) => n + 1));
});

test("a published session says which sentence it begins with", async () => {
  const page = begin();
  const starts = () => page.sockets.map(({ url, server }) => [url, server.start.key, server.start.sentence]);
  page.send("one. a b");
  await settle();
  page.connection.publish("talk", "k");
  await settle();
  assert.deepEqual(page.sockets.at(-1).server.received, ["a", "b"], "the current sentence is published");
  page.send("c. d");
  page.break();
  await page.wait();
  page.connection.reset();
  await settle();
  page.send("e. f");
  page.break();
  await page.wait();
  const at = "ws://here?publish=talk";
  assert.deepEqual(starts(), [
    ["ws://here", undefined, undefined],
    [at, "k", undefined], // the next one: 10
    [at, "k", 11],
    [at, "k", undefined], // 10 in this mock
    [at, "k", 11],
  ]);
  page.connection.publish("", "");
  await settle();
  assert.deepEqual(starts().at(-1), ["ws://here", undefined, undefined]);
});

test("another model begins after the current sentence", async () => {
  const page = begin();
  page.send("a b c");
  await settle();
  page.connection.setModel("vi-en");
  page.send("d e.");
  assert.equal(texts(page.words()), "A B C");
  await settle();
  const [first, second] = page.sockets.map(({ server }) => server);
  assert.deepEqual([first.start.model, second.start.model], [undefined, "vi-en"]);
  assert.deepEqual([first.received, second.received], [["a", "b", "c", ""], ["d", "e."]]);
  assert.equal(texts(page.words()), "A B C D E.");
  page.connection.setModel("de-en"); // nothing waits
  await settle();
  assert.equal(page.sockets.at(-1).server.start.model, "de-en");
});

// The connection with a server that translates each word into its capitals, two words late, and that can break.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection } from "./connection.js";

/** One session: a word is written two words later, or when the sentence ends (at a full stop or by finish). */
class Server {
  constructor(socket) {
    Object.assign(this, { socket, seq: 0, expected: 1, sentence: 0, before: 0, words: [], written: 0, fed: [] });
  }

  tell(message) {
    this.seq += 1;
    this.socket.onmessage({ data: JSON.stringify({ ...message, seq: this.seq, time: 0 }) });
  }

  take(message) {
    if (message.type === "start") {
      this.start = message;
      return this.tell({ type: "ready", session: "s", latency: "wait-3", latencies: [], model: {}, limits: {} });
    }
    assert.equal(message.seq, this.expected, "messages are counted without a gap");
    this.expected += 1;
    const finish = message.type === "finish";
    if (!finish) this.words.push(message.text);
    this.fed.push(finish ? "" : message.text);
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
    this.tell({ type: "commit", ack: message.seq, words, ends });
    if (finish) this.tell({ type: "final", ack: message.seq });
  }
}

/** A connection, the sockets it opened, what it told, and its timers, which a test runs. */
function begin(options = {}) {
  const page = { sockets: [], told: [], timers: [], up: true };
  const open = () => {
    const socket = {
      closed: false,
      send(text) {
        assert.ok(!this.closed);
        if (!page.deaf) this.server.take(JSON.parse(text));
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
    url: "ws://here", latency: "low", tell: (event) => page.told.push(event), open, random: () => 1,
    later(call, pause) {
      const timer = { call, pause };
      page.timers.push(timer);
      return timer;
    },
    never: (timer) => (page.timers = page.timers.filter((other) => other !== timer)),
    ...options,
  });
  page.states = () => page.told.filter(({ type }) => type === "state").map(({ state }) => state);
  page.words = () => page.told.filter(({ type }) => type === "word");
  page.break = () => {
    page.sockets.at(-1).closed = true;
    page.sockets.at(-1).onclose();
  };
  page.wait = async () => {
    page.timers.pop().call();
    await settle();
  };
  page.now = 0;
  page.say = (text) => text.split(" ").forEach((word) => page.connection.say(word, (page.now += 100)));
  return page;
}

const settle = () => new Promise((done) => setImmediate(done));
const texts = (events) => events.map(({ text }) => text).join(" ");

test("words said before the connection is ready are sent when it is", async () => {
  const page = begin({ token: "secret" });
  page.say("a b c");
  assert.equal(page.words().length, 0);
  await settle();
  assert.deepEqual(page.sockets[0].server.start, { type: "start", latency: "low", token: "secret" });
  assert.deepEqual(page.states(), ["connecting", "open"]);
  assert.equal(texts(page.words()), "A");
  assert.deepEqual(page.told.filter(({ type }) => type === "read").map(({ source }) => source), [1, 2, 3]);
});

test("a sentence under way when the server restarts is told again, and no word is shown twice", async () => {
  const page = begin();
  page.say("one. a b c d");
  await settle();
  assert.equal(texts(page.words()), "ONE. A B");
  page.break();
  page.say("e"); // said while there is no server
  assert.equal(page.sockets.length, 1, "a word does not shorten the pause");
  assert.equal(page.states().at(-1), "waiting");
  await page.wait();
  assert.deepEqual(page.sockets.at(-1).server.fed, ["a", "b", "c", "d", "e"]);
  page.say("f.");
  assert.equal(texts(page.words()), "ONE. A B C D E F.");
  assert.deepEqual(page.words().map(({ source }) => source), [1, 4, 5, 6, 7, 7, 7], "counted over both sessions");
  assert.deepEqual(page.words().map(({ delay }) => delay), [1, 3, 4, 5, 6, 6, 6]);
  assert.deepEqual(page.words().map(({ sentence }) => sentence), [0, 1, 1, 1, 1, 1, 1]);
  const ends = page.told.filter(({ type }) => type === "end");
  assert.deepEqual(ends, [
    { type: "end", sentence: 0, source: 1, length: 1 },
    { type: "end", sentence: 1, source: 7, length: 6 },
  ]);
});

test("it breaks again and again, in every place: the words are those of one that never broke", async () => {
  const script = ["a", "b", "c.", "", "d", "e", "", "f", "g", "h", "i", "j.", "k", ""];
  const said = async (breaks) => {
    const page = begin();
    page.connection.connect();
    await settle();
    for (const [n, word] of script.entries()) {
      page.say(word);
      if (breaks.includes(n)) {
        page.break();
        await page.wait();
      }
    }
    await settle();
    return page.told.filter(({ type }) => ["word", "end"].includes(type));
  };
  const wanted = await said([]);
  assert.equal(texts(wanted.filter(({ type }) => type === "word")), "A B C. D E F G H I J. K");
  for (let first = 0; first < script.length; first += 1) {
    for (let second = first; second < script.length; second += 1) {
      assert.deepEqual(await said([first, second]), wanted, `broken after ${first} and ${second}`);
    }
  }
});

test("words that were sent but not answered are sent again", async () => {
  const page = begin();
  page.say("a b c d");
  await settle();
  page.deaf = true;
  page.say("e f");
  page.break();
  page.deaf = false;
  await page.wait();
  assert.deepEqual(page.sockets[1].server.fed, ["a", "b", "c", "d", "e", "f"]);
  assert.equal(texts(page.words()), "A B C D");
  assert.deepEqual(page.words().map(({ arrived }) => arrived), [300, 400, 500, 600], "when they were said");
});

test("pauses grow while there is no server, and are short again when it works", async () => {
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
  page.say("a");
  page.break();
  assert.equal(page.timers.pop().pause, 300);
});

test("another latency is told to the session, and to the next one", async () => {
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

test("a session that was closed for silence is opened by the next word", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.sockets[0].server.tell({ type: "error", code: "idle", message: "nothing came", fatal: true });
  page.break();
  assert.deepEqual(page.states().at(-1), "asleep");
  assert.equal(page.timers.length, 0);
  page.say("a.");
  await settle();
  assert.equal(texts(page.words()), "A.");
});

test("a mistake that would come again is not tried again; a token is", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.sockets[0].server.tell({ type: "error", code: "unauthorized", message: "give a token", fatal: true });
  page.break();
  assert.deepEqual(page.states().at(-1), "stopped");
  assert.equal(page.told.find(({ type }) => type === "error").message, "give a token");
  assert.equal(page.timers.length, 0);
  page.connection.identify("secret");
  await settle();
  assert.equal(page.sockets[1].server.start.token, "secret");
});

test("a latency that the server does not know becomes the usual one", async () => {
  const page = begin({ latency: "lwo" });
  const take = Server.prototype.take;
  Server.prototype.take = function (message) {
    if (message.latency !== "lwo") return take.call(this, message);
    this.tell({ type: "error", code: "protocol", message: "no latency lwo", fatal: false });
  };
  page.connection.connect();
  await settle();
  Server.prototype.take = take;
  assert.equal(page.told.find(({ type }) => type === "error").message, "no latency lwo");
  assert.equal(page.states().at(-1), "open");
  assert.equal(page.connection.latency, "medium");
});

test("a connection that does not answer is taken for dead", async () => {
  const page = begin();
  page.say("a b c");
  await settle();
  assert.equal(page.timers.length, 0, "all is answered");
  page.deaf = true;
  page.say("d");
  assert.deepEqual(page.timers.map(({ pause }) => pause), [15000]);
  page.deaf = false;
  page.timers[0].call();
  assert.equal(page.states().at(-1), "waiting");
  await page.wait();
  assert.equal(texts(page.words()), "A B");
  assert.equal(page.sockets.length, 2);
});

test("after a reset nothing of before is told or heard", async () => {
  const page = begin();
  page.say("a b c");
  await settle();
  const old = page.sockets[0];
  page.connection.reset();
  await settle();
  const count = page.told.length;
  old.server.take({ type: "words", seq: 4, text: "late" });
  assert.equal(page.told.length, count);
  page.say("x y z");
  const wanted = { type: "word", text: "X", sentence: 0, source: 3, delay: 3, arrived: 600 };
  assert.deepEqual(page.words().at(-1), wanted);
});

test("no more than a window of messages is on its way", async () => {
  const page = begin();
  page.connection.connect();
  await settle();
  page.deaf = true;
  const sent = [];
  page.sockets[0].send = (text) => sent.push(JSON.parse(text));
  for (let n = 0; n < 1000; n += 1) page.say("a");
  assert.equal(sent.length, 256);
  page.sockets[0].server.tell({ type: "commit", ack: 100, words: [], ends: [] });
  assert.equal(sent.length, 356);
  assert.deepEqual(sent.map(({ seq }) => seq), Array.from({ length: 356 }, (_, n) => n + 1));
});

// The WebSocket to the server: opened when needed, opened again when it breaks, with longer and longer pauses.
//
// What a session was told before it broke is the journal's business. Knows the protocol; nothing of the page.

import { Journal } from "./journal.js";

const PAUSES = [300, 600, 1200, 2500, 5000]; // milliseconds before the next try
const SILENCE = 15000; // milliseconds without an answer, after which a connection is taken for dead
const USUAL = "medium"; // a latency that every server has
// Trying again would end in the same way.
const HOPELESS = new Set(["unauthorized", "origin", "protocol", "too_big"]);

export class Connection {
  #socket = null;
  #ready = false;
  #timer = null; // of the next try
  #watch = null; // of an answer that is due
  #tries = 0;
  #fatal = null; // the error that a close follows
  #asleep = true; // whoever has something to say opens a session
  #journal = new Journal();

  /**
   * tell: is given {type: "state", state} (connecting, open, waiting, asleep, stopped), {type: "ready", …},
   * {type: "error", …} and what the journal makes of commits.
   * open, later, never, random: WebSocket, setTimeout, clearTimeout, Math.random, or what a test puts there.
   */
  constructor({ url, latency, token, tell, open, later, never, random }) {
    Object.assign(this, { url, latency, token, tell });
    this.open = open ?? ((address) => new WebSocket(address));
    this.later = later ?? ((call, pause) => setTimeout(call, pause));
    this.never = never ?? ((timer) => clearTimeout(timer));
    this.random = random ?? Math.random;
  }

  /** One more source word at a time in milliseconds; an empty one ends the sentence. */
  say(word, at) {
    this.#journal.add(word, at);
    this.wake();
    this.#send();
  }

  /** Connect if nothing was to be said so far, or for long. */
  wake() {
    if (this.#asleep) this.connect();
  }

  setLatency(latency) {
    this.latency = latency;
    if (this.#ready) this.#post(this.#start());
  }

  /** Try at once, whatever happened. */
  connect() {
    if (this.#socket !== null) return;
    this.never(this.#timer);
    this.#fatal = null;
    this.#asleep = false;
    this.#state("connecting");
    const socket = this.open(this.url);
    this.#socket = socket;
    socket.onopen = () => this.#mine(socket, () => this.#post(this.#start()));
    socket.onmessage = (event) => this.#mine(socket, () => this.#take(JSON.parse(event.data)));
    socket.onclose = () => this.#mine(socket, () => this.#closed());
  }

  /** Forget everything that was said; the next word begins a new session. */
  reset() {
    this.#drop();
    this.#journal = new Journal();
    this.connect();
  }

  /** Use another token from now on. */
  identify(token) {
    this.token = token;
    this.#drop();
    this.connect();
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null; // what it still says is not ours any more
    this.#ready = false;
    this.never(this.#timer);
    this.never(this.#watch);
    socket?.close();
  }

  #mine(socket, call) {
    if (socket === this.#socket) call();
  }

  #start() {
    const start = { type: "start", latency: this.latency };
    return this.token ? { ...start, token: this.token } : start;
  }

  #post(message) {
    this.#socket.send(JSON.stringify(message));
  }

  #state(state) {
    this.tell({ type: "state", state });
  }

  #send() {
    if (!this.#ready) return;
    for (let message; (message = this.#journal.message()) !== null; ) this.#post(message);
    this.never(this.#watch);
    if (this.#journal.pending) this.#watch = this.later(() => this.#dead(), SILENCE);
  }

  /** A network that has gone says nothing, and browsers notice late. */
  #dead() {
    this.#drop();
    this.#closed();
  }

  #take(message) {
    switch (message.type) {
      case "ready":
        this.tell(message);
        if (this.#ready) return; // the answer to another latency
        this.#ready = true;
        this.#journal.restart();
        this.#state("open");
        break;
      case "commit":
        this.#tries = 0; // it works: the next pause is a short one again
        this.#journal.commit(message).forEach((event) => this.tell(event));
        break;
      case "error":
        if (message.fatal) this.#fatal = message.code;
        if (message.code !== "idle") this.tell(message);
        if (!this.#ready && !message.fatal && this.latency !== USUAL) {
          this.latency = USUAL; // it did not know ours
          this.#post(this.#start());
        }
    }
    this.#send();
  }

  #closed() {
    this.#socket = null;
    this.#ready = false;
    this.never(this.#watch);
    if (HOPELESS.has(this.#fatal)) return this.#state("stopped");
    this.#asleep = this.#fatal === "idle";
    if (this.#asleep) return this.#state("asleep");
    const pause = PAUSES[Math.min(this.#tries, PAUSES.length - 1)];
    this.#tries += 1;
    this.#state("waiting");
    // Not all at the same moment: a server that restarts has many clients.
    this.#timer = this.later(() => this.connect(), pause * (0.5 + this.random() / 2));
  }
}

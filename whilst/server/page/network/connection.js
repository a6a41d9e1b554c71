// The WebSocket to the server, opened when needed and again when it breaks, with increasing delays.
//
// Handles the protocol, not the page. The journals decide what to send again.

import { AudioJournal } from "./audio.js";
import { Journal } from "./journal.js";

const RETRY_DELAYS = [300, 600, 1200, 2500, 5000]; // milliseconds before the next attempt
const SPEAKER_RETRY = 3000; // milliseconds until the server may have noticed that our last connection is lost
const RESPONSE_TIMEOUT = 15000; // milliseconds without an answer until a connection counts as broken
const DEFAULT_LATENCY = "medium"; // every server has it
export const AUDIO_ERRORS = new Set(["speech", "too_many_speakers"]); // after which the server takes no more audio
// A new connection would end with the same error.
const FINAL_ERRORS = new Set(["unauthorized", "origin", "protocol", "too_big", "taken"]);

export class Connection {
  #socket = null;
  #ready = false;
  #retryTimer = null;
  #responseTimer = null;
  #attempts = 0;
  #fatalError = null; // the code of the last one
  #idle = true; // a session is opened when there is something to send
  #journal = new Journal();
  #nextModel = ""; // from the next sentence on
  #offset = null; // sentences published under the name before those of the journal
  #audio = null; // the journal of the audio; null: none is sent
  #heard = false; // whether the server has taken this audio before

  /**
   * onEvent receives {type: "state", state} (connecting, open, reconnecting, idle, stopped), {type: "ready", …},
   * {type: "error", …}, {type: "heard", …} and the events of the journal. Tests replace the other parameters.
   */
  constructor({ url, latency, model, token, onEvent, openSocket, setTimer, clearTimer, random }) {
    Object.assign(this, { url, latency, model: model ?? "", token, onEvent, published: "", key: "" });
    this.openSocket = openSocket ?? ((address) => new WebSocket(address));
    this.setTimer = setTimer ?? ((call, pause) => setTimeout(call, pause));
    this.clearTimer = clearTimer ?? ((timer) => clearTimeout(timer));
    this.random = random ?? Math.random;
  }

  /** Send a source word with its time in milliseconds; an empty one ends the sentence. */
  send(word, at) {
    this.#journal.add(word, at);
    this.wake();
    this.#flush();
  }

  /** Begin to send audio. Recognised words arrive as events; to be translated, they must be sent. */
  listen() {
    this.#audio = new AudioJournal();
    this.#heard = false;
    this.wake();
    this.#sendListen();
    this.#flush();
  }

  /** Send PCM; returns false if it is dropped because too much is waiting. */
  sendAudio(block) {
    const kept = this.#audio?.add(block) ?? true;
    this.wake();
    this.#flush();
    return kept;
  }

  /** Whether audio is being recognised. */
  get hearing() {
    return this.#audio !== null;
  }

  /** No more audio follows; an event says when all of it is recognised. */
  endAudio() {
    this.#audio?.end();
    this.#flush();
  }

  /** Open a session if there is none. */
  wake() {
    if (this.#idle) this.connect();
  }

  setLatency(latency) {
    this.latency = latency;
    if (this.#ready) this.#sendMessage(this.#start());
  }

  /** Connect at once, after any error. */
  connect() {
    if (this.#socket !== null) return;
    this.clearTimer(this.#retryTimer);
    this.#fatalError = null;
    this.#idle = false;
    this.#setState("connecting");
    const socket = this.openSocket(this.published ? `${this.url}?publish=${this.published}` : this.url);
    this.#socket = socket;
    socket.onopen = () => this.#ifCurrent(socket, () => this.#sendMessage(this.#start()));
    socket.onmessage = (event) => this.#ifCurrent(socket, () => this.#receive(JSON.parse(event.data)));
    socket.onclose = () => this.#ifCurrent(socket, () => this.#closed());
  }

  /** Start again, without what was sent before. */
  reset() {
    this.#journal = new Journal();
    this.#offset = null;
    if (this.#audio) this.#audio = new AudioJournal(this.#audio.ended);
    this.#reconnect();
  }

  setToken(token) {
    this.token = token;
    this.#reconnect();
  }

  /** Publish under a name, from the current sentence on; "" ends it. */
  publish(name, key) {
    Object.assign(this, { published: name, key });
    this.#offset = null;
    this.#reconnect();
  }

  /** End the sentence and go on with another model, in a new session. */
  setModel(model) {
    this.#nextModel = model;
    this.#journal.hold();
    this.wake();
    this.#flush();
  }

  #reconnect() {
    this.#disconnect();
    this.connect();
  }

  #disconnect() {
    const socket = this.#socket;
    this.clearTimer(this.#retryTimer);
    this.#endSession(); // its later events are ignored
    socket?.close();
  }

  #endSession() {
    this.#socket = null;
    this.#ready = false;
    this.#stopWaiting();
    this.#audio?.pause();
  }

  #ifCurrent(socket, call) {
    if (socket === this.#socket) call();
  }

  #start() {
    const start = { type: "start", latency: this.latency };
    if (this.model) start.model = this.model;
    if (this.token) start.token = this.token;
    if (this.published) start.key = this.key;
    if (this.#offset !== null) start.sentence = this.#offset + this.#journal.sentences;
    return start;
  }

  #sendListen() {
    if (this.#ready && this.#audio && !this.#audio.started) this.#sendMessage(this.#audio.startSession());
  }

  #sendMessage(message) {
    this.#socket.send(JSON.stringify(message));
  }

  #setState(state) {
    this.onEvent({ type: "state", state });
  }

  #flush() {
    if (this.#journal.held) {
      this.model = this.#nextModel;
      this.#journal.go();
      return this.#reconnect();
    }
    if (!this.#ready) return;
    for (let message; (message = this.#journal.nextMessage()) !== null; ) this.#sendMessage(message);
    for (let frame; (frame = this.#audio?.nextFrame() ?? null) !== null; ) this.#socket.send(frame);
    const pending = this.#journal.pending || this.#audio?.pending;
    if (pending) this.#responseTimer ??= this.setTimer(() => this.#timedOut(), RESPONSE_TIMEOUT);
  }

  #stopWaiting() {
    this.clearTimer(this.#responseTimer);
    this.#responseTimer = null;
  }

  /** Reconnect although the socket is still open: browsers notice late that a network is gone. */
  #timedOut() {
    this.#disconnect();
    this.#closed();
  }

  #receive(message) {
    this.#stopWaiting();
    switch (message.type) {
      case "ready":
        this.onEvent(message);
        if (this.#ready) return; // the answer to setLatency
        this.#ready = true;
        this.#journal.startSession();
        if (message.sentence !== undefined) this.#offset = message.sentence - this.#journal.sentences;
        this.#sendListen();
        this.#setState("open");
        break;
      case "commit":
        this.#attempts = 0;
        this.#journal.commit(message).forEach((event) => this.onEvent(event));
        break;
      case "heard":
        this.#attempts = 0;
        this.#heard = true;
        this.#audio?.heard(message);
        if (message.end) this.#audio = null;
        this.onEvent(message);
        break;
      case "error":
        if (AUDIO_ERRORS.has(message.code) && this.#keepAudio(message)) return;
        if (message.fatal) this.#fatalError = message.code;
        if (message.code !== "idle") this.onEvent(message);
        if (!this.#ready && !message.fatal && (this.latency !== DEFAULT_LATENCY || this.model)) {
          Object.assign(this, { latency: DEFAULT_LATENCY, model: "" }); // the server does not have ours
          this.#sendMessage(this.#start());
        }
    }
    this.#flush();
  }

  /** Whether the audio is sent again later: the server may still recognise it for our last connection. */
  #keepAudio({ code }) {
    const keep = code === "too_many_speakers" && this.#heard;
    this.#audio?.pause();
    if (keep) this.setTimer(() => (this.#sendListen(), this.#flush()), SPEAKER_RETRY);
    else this.#audio = null;
    return keep;
  }

  #closed() {
    this.#endSession();
    if (FINAL_ERRORS.has(this.#fatalError)) return this.#setState("stopped");
    this.#idle = this.#fatalError === "idle";
    if (this.#idle) return this.#setState("idle");
    const pause = RETRY_DELAYS[Math.min(this.#attempts, RETRY_DELAYS.length - 1)];
    this.#attempts += 1;
    this.#setState("reconnecting");
    // With jitter, as a server that restarts has many clients.
    this.#retryTimer = this.setTimer(() => this.connect(), pause * (0.5 + this.random() / 2));
  }
}

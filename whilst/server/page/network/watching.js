// The WebSocket of a watcher, opened again when it breaks, and the words that it brings.

const RETRY_DELAYS = [500, 1000, 2000, 5000]; // milliseconds
const FINAL_ERRORS = new Set(["origin", "protocol"]); // a new connection would end with the same error

export class Watch {
  words = []; // {text, sentence, time}; a new array when they do not continue those before
  model = null;
  state = "waiting"; // live, waiting, reconnecting, stopped
  error = "";
  #first = 0; // the number of the first word
  #cursor = "";
  #attempts = 0;

  /** onChange receives the new words. Tests replace the other parameters. */
  constructor({ url, onChange, openSocket, setTimer }) {
    Object.assign(this, { url, onChange });
    this.openSocket = openSocket ?? ((address) => new WebSocket(address));
    this.setTimer = setTimer ?? ((call, pause) => setTimeout(call, pause));
  }

  connect() {
    const socket = this.openSocket(`${this.url}?after=${this.#cursor}`);
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = () => this.#closed();
  }

  #receive(message) {
    this.#attempts = 0;
    let added = [];
    if (message.type === "ready") {
      this.state = message.live ? "live" : "waiting";
      this.model = message.model ?? this.model;
    } else if (message.type === "commit") {
      if (message.first !== this.#first + this.words.length) {
        this.#first = message.first;
        this.words = [];
      }
      this.#cursor = message.cursor;
      added = message.words;
      this.words.push(...added);
    } else if (FINAL_ERRORS.has(message.code)) {
      this.state = "stopped";
      this.error = message.message;
    }
    this.onChange(added);
  }

  #closed() {
    if (this.state === "stopped") return;
    this.state = "reconnecting";
    const pause = RETRY_DELAYS[Math.min(this.#attempts, RETRY_DELAYS.length - 1)];
    this.#attempts += 1;
    this.onChange([]);
    // With jitter, as a server that restarts has many watchers.
    this.setTimer(() => this.connect(), pause * (0.5 + Math.random() / 2));
  }
}

/** Sentences, each a list of texts. */
export function sentences(words) {
  const result = [];
  for (const [n, { text, sentence }] of words.entries()) {
    if (n && words[n - 1].sentence === sentence) result.at(-1).push(text);
    else result.push([text]);
  }
  return result;
}

/** A timeline (export.js), whose times count from the first word. */
export function timeline(words) {
  return words.flatMap(({ text, sentence, time }, n) => {
    const entry = { text, at: Math.round((time - words[0].time) * 1000) };
    return n && words[n - 1].sentence !== sentence ? [null, entry] : [entry];
  });
}

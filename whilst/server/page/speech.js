// Speech, where the browser can recognise it. A word counts when two guesses in a row have it, or when it is final.

import { BREAK } from "./words.js";

/** Collects the guesses of one utterance; each call gives the words that have become certain. */
export class Agreement {
  #fed = 0; // words handed out
  #guess = [];

  guess(text) {
    const words = text.split(/\s+/u).filter(Boolean);
    let same = 0;
    while (same < words.length && words[same] === this.#guess[same]) same += 1;
    this.#guess = words;
    return this.#hand(words, same);
  }

  /** The utterance is over, and so is the sentence. */
  final(text) {
    const words = text.split(/\s+/u).filter(Boolean);
    const rest = this.#hand(words, words.length);
    [this.#fed, this.#guess] = [0, []];
    return [...rest, BREAK];
  }

  /** Nothing more comes of the utterance, if one is under way: its last guess has to do. */
  end() {
    return this.#guess.length ? this.final(this.#guess.join(" ")) : [];
  }

  #hand(words, end) {
    const certain = words.slice(this.#fed, end);
    this.#fed = Math.max(this.#fed, end);
    return certain;
  }
}

export const Recognition = globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;

const COMPLAINTS = {
  "not-allowed": "The browser may not use the microphone: allow it in the address bar.",
  "audio-capture": "No microphone was found.",
  network: "The browser's speech recognition cannot be reached.",
  "language-not-supported": "The browser's speech recognition does not know this language.",
};

/** Listens until stopped. hear: is given words; ended: why it stopped, or "" if it was asked to. */
export class Listener {
  constructor({ hear, ended, Recogniser = Recognition }) {
    Object.assign(this, { hear, ended, Recogniser });
    this.recogniser = null;
  }

  get listening() {
    return this.recogniser !== null;
  }

  start(language) {
    const recogniser = new this.Recogniser();
    const agreement = new Agreement();
    let why = "";
    Object.assign(recogniser, { lang: language, continuous: true, interimResults: true });
    recogniser.onresult = ({ resultIndex, results }) => {
      const latest = [...results].slice(resultIndex);
      const guesses = (final) => latest.filter(({ isFinal }) => isFinal === final).map(([best]) => best.transcript);
      guesses(true).forEach((text) => this.hear(agreement.final(text)));
      const open = guesses(false);
      if (open.length) this.hear(agreement.guess(open.join(" ")));
    };
    recogniser.onerror = ({ error }) => {
      why = COMPLAINTS[error] ?? why; // silence and the like end nothing
    };
    recogniser.onend = () => {
      this.hear(agreement.end()); // what it hears next is another utterance
      if (this.recogniser === recogniser && !why) return recogniser.start(); // browsers stop after a while
      this.recogniser = null;
      this.ended(why);
    };
    this.recogniser = recogniser;
    recogniser.start();
  }

  stop() {
    const recogniser = this.recogniser;
    this.recogniser = null;
    recogniser?.stop();
  }
}

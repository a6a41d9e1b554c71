// The speech recognition of the browser. A word is final when two partial results in a row have it.

import { BREAK } from "../text/words.js";

/** Collects the partial results of one utterance; each call returns the words that become final. */
export class Agreement {
  #released = 0; // words returned
  #partial = [];

  addPartial(text) {
    const words = text.split(/\s+/u).filter(Boolean);
    let same = 0;
    while (same < words.length && words[same] === this.#partial[same]) same += 1;
    this.#partial = words;
    return this.#release(words, same);
  }

  /** The utterance and its sentence end. */
  final(text) {
    const words = text.split(/\s+/u).filter(Boolean);
    const rest = this.#release(words, words.length);
    [this.#released, this.#partial] = [0, []];
    return [...rest, BREAK];
  }

  /** End the current utterance, if there is one, with its last partial result. */
  end() {
    return this.#partial.length ? this.final(this.#partial.join(" ")) : [];
  }

  #release(words, end) {
    const certain = words.slice(this.#released, end);
    this.#released = Math.max(this.#released, end);
    return certain;
  }
}

export const Recognition = globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;

const ERROR_MESSAGES = {
  "not-allowed": "The browser may not use the microphone: allow it in the address bar.",
  "audio-capture": "No microphone was found.",
  network: "The browser's speech recognition cannot be reached.",
  "language-not-supported": "The browser's speech recognition does not know this language.",
};

/** Listens until stopped. onWords receives words; onEnd the reason, "" after stop(). */
export class Listener {
  constructor({ onWords, onEnd, Recogniser = Recognition }) {
    Object.assign(this, { onWords, onEnd, Recogniser });
    this.recogniser = null;
  }

  get listening() {
    return this.recogniser !== null;
  }

  start(language) {
    const recogniser = new this.Recogniser();
    const agreement = new Agreement();
    let reason = "";
    Object.assign(recogniser, { lang: language, continuous: true, interimResults: true });
    recogniser.onresult = ({ resultIndex, results }) => {
      const latest = [...results].slice(resultIndex);
      const texts = (final) => latest.filter(({ isFinal }) => isFinal === final).map(([best]) => best.transcript);
      texts(true).forEach((text) => this.onWords(agreement.final(text)));
      const open = texts(false);
      if (open.length) this.onWords(agreement.addPartial(open.join(" ")));
    };
    recogniser.onerror = ({ error }) => {
      reason = ERROR_MESSAGES[error] ?? reason; // others, such as no-speech, are ignored
    };
    recogniser.onend = () => {
      this.onWords(agreement.end());
      if (this.recogniser === recogniser && !reason) return recogniser.start(); // browsers stop after some time
      this.recogniser = null;
      this.onEnd(reason);
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

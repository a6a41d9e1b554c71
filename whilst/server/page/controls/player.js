// Plays words at the rate of speech.

import { BREAK, mayEndSentence } from "../text/words.js";

export class Player {
  #words = [];
  #timer = null;

  /** onWord receives each word; onChange is called at start, pause, end, and before every word. */
  constructor({ onWord, onChange, setTimer, clearTimer }) {
    Object.assign(this, { onWord, onChange });
    this.setTimer = setTimer ?? ((call, pause) => setTimeout(call, pause));
    this.clearTimer = clearTimer ?? ((timer) => clearTimeout(timer));
    this.pace = 3; // words a second; Infinity: at once
  }

  get playing() {
    return this.#timer !== null;
  }

  get left() {
    return this.#words.length;
  }

  /** The rest of the sentence that is being played. */
  get upcoming() {
    const end = this.#words.findIndex(mayEndSentence);
    return this.#words.slice(0, end < 0 ? undefined : end + 1).filter((word) => word !== BREAK);
  }

  add(words) {
    this.#words.push(...words);
    this.resume();
  }

  resume() {
    if (!this.playing && this.left) this.#next();
  }

  pause() {
    this.clearTimer(this.#timer);
    this.#timer = null;
    this.onChange();
  }

  clear() {
    this.#words = [];
    this.pause();
  }

  #next() {
    this.#timer = null;
    do {
      const word = this.#words.shift();
      if (word === undefined) return this.onChange();
      this.onWord(word);
    } while (this.pace === Infinity || this.#words[0] === BREAK); // a break takes no time
    this.#timer = this.setTimer(() => this.#next(), 1000 / this.pace);
    this.onChange();
  }
}

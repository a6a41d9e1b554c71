// Plays words at speaking pace, as if someone said them.

import { BREAK, seemsLast } from "./words.js";

export class Player {
  #words = [];
  #timer = null;

  /** say: is given each word; changed: is called when it begins, pauses or ends, and before every word. */
  constructor({ say, changed, later, never }) {
    Object.assign(this, { say, changed });
    this.later = later ?? ((call, pause) => setTimeout(call, pause));
    this.never = never ?? ((timer) => clearTimeout(timer));
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
    const end = this.#words.findIndex(seemsLast);
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
    this.never(this.#timer);
    this.#timer = null;
    this.changed();
  }

  clear() {
    this.#words = [];
    this.pause();
  }

  #next() {
    this.#timer = null;
    do {
      const word = this.#words.shift();
      if (word === undefined) return this.changed();
      this.say(word);
    } while (this.pace === Infinity || this.#words[0] === BREAK); // an end takes no time
    this.#timer = this.later(() => this.#next(), 1000 / this.pace);
    this.changed();
  }
}

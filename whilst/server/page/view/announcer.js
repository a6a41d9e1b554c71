// Announces the translation to screen readers, in phrases rather than single words.

import { join } from "../text/words.js";

const PAUSE = 1500; // milliseconds for which words are collected
const MAX_PHRASES = 20;

export class Announcer {
  #words = [];
  #timer = null;

  constructor(node) {
    this.node = node;
  }

  add(word) {
    this.#words.push(word);
    this.#timer ??= setTimeout(() => this.#announce(), PAUSE);
  }

  clear() {
    this.#words = [];
    this.node.replaceChildren();
  }

  #announce() {
    this.#timer = null;
    if (!this.#words.length) return;
    this.node.append(Object.assign(document.createElement("span"), { textContent: `${join(this.#words)} ` }));
    this.#words = [];
    while (this.node.children.length > MAX_PHRASES) this.node.firstChild.remove();
  }
}

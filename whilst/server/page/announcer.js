// Tells a screen reader the translation: phrases rather than single words, which it would stumble over.

import { join } from "./words.js";

const PAUSE = 1500; // milliseconds that words are collected for
const KEPT = 20; // phrases

export class Announcer {
  #words = [];
  #timer = null;

  constructor(node) {
    this.node = node;
  }

  add(word) {
    this.#words.push(word);
    this.#timer ??= setTimeout(() => this.#tell(), PAUSE);
  }

  clear() {
    this.#words = [];
    this.node.replaceChildren();
  }

  #tell() {
    this.#timer = null;
    if (!this.#words.length) return;
    this.node.append(Object.assign(document.createElement("span"), { textContent: `${join(this.#words)} ` }));
    this.#words = [];
    while (this.node.children.length > KEPT) this.node.firstChild.remove();
  }
}

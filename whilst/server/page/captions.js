// Captions: the last lines of the translation, large; in this window, and in others of this browser that follow it.

import { element } from "./transcript.js";
import { gap } from "./words.js";

const CHANNEL = "whilst-captions";

export class Captions {
  #first = 0; // number of the first sentence shown
  #channel = globalThis.BroadcastChannel ? new BroadcastChannel(CHANNEL) : null;
  #last = null;

  constructor(node) {
    this.node = node;
    if (this.#channel) this.#channel.onmessage = ({ data }) => this.#hear(data);
  }

  /** Ask a window that is at work what it shows. */
  follow() {
    this.#channel?.postMessage({ ask: true });
  }

  #hear({ ask, captions }) {
    if (captions && !this.#last) {
      this.draw(captions); // what is said here comes first, and is told by its own page
      Object.assign(this.node, { ariaHidden: null, ariaLive: "polite" });
    }
    if (ask && this.#last) this.#channel.postMessage({ captions: this.#last });
  }

  /** Draw here and wherever it is followed. */
  show(captions) {
    this.#last = captions.lines.length ? captions : null;
    this.#channel?.postMessage({ captions });
    this.draw(captions);
  }

  /** Sentences keep their lines until they leave at the top: words never move to another line. */
  draw({ first, lines, language }) {
    this.node.lang = language;
    while (this.#first < first && this.node.firstChild) {
      this.node.firstChild.remove();
      this.#first += 1;
    }
    if (this.#first > first || lines.length < this.node.children.length) this.node.replaceChildren();
    this.#first = first;
    for (const [n, words] of lines.entries()) {
      const line = (this.node.children[n] ?? this.node.appendChild(element("p", {}, element("span")))).firstChild;
      if (words.length < line.children.length) line.replaceChildren();
      for (let at = line.children.length; at < words.length; at += 1) {
        line.append(gap(words[at - 1], words[at]), element("span", { className: "word", textContent: words[at] }));
      }
    }
  }
}

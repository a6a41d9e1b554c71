// Captions: the last lines of the translation, in this window and in others of this browser that follow it.

import { element } from "./transcript.js";
import { separator } from "../text/words.js";

const CHANNEL = "whilst-captions";

export class Captions {
  #first = 0; // number of the first sentence shown
  #channel = null;
  #last = null;

  /** shared: whether other windows can follow this one. */
  constructor(node, { shared = true } = {}) {
    this.node = node;
    if (shared && globalThis.BroadcastChannel) this.#channel = new BroadcastChannel(CHANNEL);
    if (this.#channel) this.#channel.onmessage = ({ data }) => this.#receive(data);
  }

  /** Request the captions of another window. */
  follow() {
    this.#channel?.postMessage({ request: true });
  }

  #receive({ request, captions }) {
    if (captions && !this.#last) {
      this.draw(captions);
      Object.assign(this.node, { ariaHidden: null, ariaLive: "polite" });
    }
    if (request && this.#last) this.#channel.postMessage({ captions: this.#last });
  }

  /** Draw here and in the windows that follow. */
  show(captions) {
    this.#last = captions.lines.length ? captions : null;
    this.#channel?.postMessage({ captions });
    this.draw(captions);
  }

  /** Sentences keep their lines until they leave at the top, so that words do not move. */
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
        const word = element("span", { className: "word", textContent: words[at] });
        line.append(separator(words[at - 1], words[at]), word);
      }
    }
  }
}

// Draws sentences: source and translation side by side. Only what has changed is touched.

import { delays, readNow } from "./model.js";
import { gap } from "./words.js";

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** Appends the words that are not there yet. */
function grow(parent, texts) {
  for (let n = parent.children.length; n < texts.length; n += 1) {
    parent.append(gap(texts[n - 1], texts[n]), element("span", { className: "word", textContent: texts[n] }));
  }
}

const texts = (words) => words.map((word) => word.text);

export class Transcript {
  #chosen = null; // the number of the sentence whose staircase is wanted; null: the latest
  #languages = { source: "", target: "" };

  /** nodes: past (a list), said, upcoming, written; choose: is called when a sentence is chosen. */
  constructor({ nodes, choose }) {
    Object.assign(this, { nodes, choose });
    nodes.past.onkeydown = (event) => this.#walk(event);
  }

  speak(source, target) {
    this.#languages = { source, target };
    this.nodes.said.lang = source;
    this.nodes.upcoming.lang = source;
    this.nodes.written.lang = target;
  }

  draw(state, upcoming) {
    const { past, said, written } = this.nodes;
    if (state.past.length > past.children.length) {
      const rows = past.children.length;
      past.append(...state.past.slice(rows).map((sentence, n) => this.#row(sentence, rows + n)));
      if (!past.contains(document.activeElement)) this.#reach(past.lastElementChild);
      said.replaceChildren();
      written.replaceChildren();
    }
    grow(said, state.source);
    grow(written, texts(state.words));
    this.#light(readNow(state));
    this.#announce(state.source, upcoming);
  }

  clear() {
    this.#chosen = null;
    for (const node of [this.nodes.past, this.nodes.said, this.nodes.written]) node.replaceChildren();
  }

  #light(read) {
    for (const [n, word] of [...this.nodes.said.children].entries()) word.classList.toggle("read", n < read);
  }

  #announce(source, words) {
    const text = words.map((word, n) => gap(n ? words[n - 1] : source.at(-1), word) + word).join("");
    if (this.nodes.upcoming.textContent !== text) this.nodes.upcoming.textContent = text;
  }

  #row(sentence, number) {
    const source = element("p", { className: "source", lang: this.#languages.source });
    const target = element("p", { className: "target", lang: this.#languages.target });
    grow(source, sentence.source);
    grow(target, texts(sentence.words));
    for (const word of source.children) word.classList.add("read");
    const beside = element("div", {}, target, this.#button(sentence, number));
    const row = element("li", { className: "row" }, source, beside);
    this.#link(row, sentence);
    return row;
  }

  #button({ lag }, number) {
    const text = `lag ${lag === null ? "–" : lag.toFixed(1)}`;
    const label = `Sentence ${number + 1}, ${text}: draw its staircase`;
    const button = element("button", { type: "button", className: "lagged", textContent: text, title: label });
    button.setAttribute("aria-label", label);
    button.setAttribute("aria-pressed", "false");
    button.setAttribute("tabindex", "-1");
    button.onclick = () => this.#choose(this.#chosen === number ? null : number);
    return button;
  }

  /** Tab reaches one sentence, the last or where one was; arrows the others. Else the way to the text grows. */
  #reach(row) {
    this.nodes.past.querySelector("button[tabindex='0']")?.setAttribute("tabindex", "-1");
    row.querySelector("button").setAttribute("tabindex", "0");
  }

  #walk(event) {
    const step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    const row = step && event.target.closest(".row")[step];
    if (!row) return;
    event.preventDefault();
    this.#reach(row);
    row.querySelector("button").focus();
  }

  #choose(number) {
    this.#chosen = number;
    for (const [n, row] of [...this.nodes.past.children].entries()) {
      row.querySelector("button").setAttribute("aria-pressed", String(n === number));
    }
    this.choose();
  }

  /** Pointing at a word of the translation marks what had been read when it was written. */
  #link(row, sentence) {
    const [source, target] = [row.querySelector(".source"), row.querySelector(".target")];
    const mark = (count) => [...source.children].forEach((word, n) => word.classList.toggle("had", n < count));
    target.onpointerover = ({ target: word }) => {
      const place = [...target.children].indexOf(word);
      mark(place < 0 ? 0 : sentence.words[place].delay);
    };
    target.onpointerleave = () => mark(0);
  }

  /** What the staircase shows: the sentence that was chosen, else the one under way, else the last. */
  staircase(state) {
    const live = { reads: delays(state.words), read: readNow(state), length: null, number: state.past.length };
    const number = this.#chosen ?? (live.read || !state.past.length ? live.number : state.past.length - 1);
    if (number === live.number) return live;
    const { source, words } = state.past[number];
    return { reads: delays(words), read: source.length, length: source.length, number };
  }
}

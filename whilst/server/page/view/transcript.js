// Draws sentences, source and translation side by side. Only what has changed is updated.

import { delays, readInSentence, visibleSource } from "../text/model.js";
import { clock } from "../text/subtitles.js";
import { separator } from "../text/words.js";

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** Append the words that are missing. */
function appendWords(parent, texts) {
  for (let n = parent.children.length; n < texts.length; n += 1) {
    parent.append(separator(texts[n - 1], texts[n]), element("span", { className: "word", textContent: texts[n] }));
  }
}

const texts = (words) => words.map((word) => word.text);

export class Transcript {
  #selected = null; // the sentence whose staircase is drawn; null: the latest
  #languages = { source: "", target: "" };

  /** nodes: past (a list), source, upcoming, target. onSelect is called when a sentence is selected. */
  constructor({ nodes, onSelect }) {
    Object.assign(this, { nodes, onSelect });
    nodes.past.onkeydown = (event) => this.#moveFocus(event);
  }

  setLanguages(source, target) {
    this.#languages = { source, target };
    this.nodes.source.lang = source;
    this.nodes.upcoming.lang = source;
    this.nodes.target.lang = target;
  }

  draw(state, upcoming) {
    const { past, source, target } = this.nodes;
    if (state.past.length > past.children.length) {
      const rows = past.children.length;
      past.append(...state.past.slice(rows).map((sentence, n) => this.#row(sentence, rows + n)));
      if (!past.contains(document.activeElement)) this.#makeFocusable(past.lastElementChild);
      source.replaceChildren();
      target.replaceChildren();
    }
    const { shown, more } = visibleSource(state);
    appendWords(source, shown);
    appendWords(target, texts(state.words));
    this.#highlightRead(readInSentence(state));
    this.#drawUpcoming(state.source, more ? [`… ${more.toLocaleString("en")} words`] : upcoming);
  }

  clear() {
    this.#selected = null;
    for (const node of [this.nodes.past, this.nodes.source, this.nodes.target]) node.replaceChildren();
  }

  #highlightRead(read) {
    for (const [n, word] of [...this.nodes.source.children].entries()) word.classList.toggle("read", n < read);
  }

  #drawUpcoming(source, words) {
    const text = words.map((word, n) => separator(n ? words[n - 1] : source.at(-1), word) + word).join("");
    if (this.nodes.upcoming.textContent !== text) this.nodes.upcoming.textContent = text;
  }

  #row(sentence, number) {
    const source = element("p", { className: "source", lang: this.#languages.source });
    const target = element("p", { className: "target", lang: this.#languages.target });
    appendWords(source, sentence.source);
    appendWords(target, texts(sentence.words));
    for (const word of source.children) word.classList.add("read");
    const time = element("time", { textContent: sentence.time === null ? "" : clock(sentence.time) });
    const beside = element("div", {}, target, element("span", {}, time, this.#button(sentence, number)));
    const row = element("li", { className: "row" }, source, beside);
    this.#linkWords(row, sentence);
    return row;
  }

  #button({ lag }, number) {
    const text = `lag ${lag === null ? "–" : lag.toFixed(1)}`;
    const label = `Sentence ${number + 1}, ${text}: show its reads and writes`;
    const button = element("button", { type: "button", className: "lag-button", textContent: text, title: label });
    button.setAttribute("aria-label", label);
    button.setAttribute("aria-pressed", "false");
    button.setAttribute("tabindex", "-1");
    button.onclick = () => this.#select(this.#selected === number ? null : number);
    return button;
  }

  /** Roving tabindex: Tab reaches one sentence, arrow keys the others. */
  #makeFocusable(row) {
    this.nodes.past.querySelector("button[tabindex='0']")?.setAttribute("tabindex", "-1");
    row.querySelector("button").setAttribute("tabindex", "0");
  }

  #moveFocus(event) {
    const step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    const row = step && event.target.closest(".row")[step];
    if (!row) return;
    event.preventDefault();
    this.#makeFocusable(row);
    row.querySelector("button").focus();
  }

  #select(number) {
    this.#selected = number;
    for (const [n, row] of [...this.nodes.past.children].entries()) {
      row.querySelector("button").setAttribute("aria-pressed", String(n === number));
    }
    this.onSelect();
  }

  /** Pointing at a target word marks the source words that had been read. */
  #linkWords(row, sentence) {
    const [source, target] = [row.querySelector(".source"), row.querySelector(".target")];
    const mark = (count) => [...source.children].forEach((word, n) => word.classList.toggle("was-read", n < count));
    target.onpointerover = ({ target: word }) => {
      const index = [...target.children].indexOf(word);
      mark(index < 0 ? 0 : sentence.words[index].delay);
    };
    target.onpointerleave = () => mark(0);
  }

  /** The staircase of the selected sentence, else of the current one, else of the last. */
  staircase(state) {
    const next = state.past.length;
    const current = { reads: delays(state.words), read: readInSentence(state), length: null, number: next };
    const number = this.#selected ?? (current.read || !next ? next : next - 1);
    if (number === next) return current;
    const { source, words } = state.past[number];
    return { reads: delays(words), read: source.length, length: source.length, number };
  }
}

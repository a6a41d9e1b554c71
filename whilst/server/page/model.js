// What the page shows, as plain values: each function takes a state and gives the next one.

import { BREAK, join } from "./words.js";

const CAPTIONS = 3; // sentences: more than fit into the lines shown

/**
 * past: sentences that ended, {source, words, lag}; a word is {text, delay, arrived}.
 * source, words: of the sentence under way, with what was said after it. before: source words of past ones.
 * read: source words the server has read, of all. began: when the first word was said.
 */
export const empty = Object.freeze({ past: [], source: [], words: [], before: 0, read: 0, began: null });

export function heard(state, word, at) {
  if (word === BREAK) return state;
  return { ...state, source: [...state.source, word], began: state.began ?? at };
}

/** The state after an event of the connection. */
export function after(state, event) {
  switch (event.type) {
    case "read":
      return { ...state, read: Math.max(state.read, event.source) };
    case "word": {
      const { text, delay, arrived } = event;
      return { ...state, words: [...state.words, { text, delay, arrived }] };
    }
    case "end":
      return ended(state, event.source);
  }
  return state;
}

function ended(state, before) {
  const length = before - state.before;
  const { words } = state;
  const sentence = { source: state.source.slice(0, length), words, lag: lagging(delays(words), length) };
  return { ...state, past: [...state.past, sentence], source: state.source.slice(length), words: [], before };
}

export const delays = (words) => words.map((word) => word.delay);

/** Average lagging: by how many source words the translation runs behind one that keeps an even pace. */
export function lagging(reads, length) {
  if (!reads.length || !length) return null;
  const pace = length / reads.length;
  let total = 0;
  for (const [n, read] of reads.entries()) {
    total += read - n * pace;
    if (read >= length) return total / (n + 1);
  }
  return total / reads.length;
}

export function meanLag(state) {
  const lags = state.past.map((sentence) => sentence.lag).filter((lag) => lag !== null);
  return lags.length ? lags.reduce((sum, lag) => sum + lag, 0) / lags.length : null;
}

/** Source words read in the sentence under way. */
export const readNow = (state) => Math.min(Math.max(0, state.read - state.before), state.source.length);

/** How many more words were said than written, in the sentence under way and after it. */
export const behind = (state) => Math.max(0, state.source.length - state.words.length);

const texts = (words) => words.map((word) => word.text);

/** The translation, a sentence a line. */
export function translation(state) {
  const lines = [...state.past.map((sentence) => sentence.words), state.words].filter((words) => words.length);
  return lines.map((words) => join(texts(words)) + "\n").join("");
}

/** The last sentences of the translation, each a list of words, with the number of the first. */
export function captions(state) {
  const lines = [...state.past.slice(-CAPTIONS).map(({ words }) => texts(words)), texts(state.words)];
  return { first: Math.max(0, state.past.length - CAPTIONS), lines };
}

/** What subtitles are made of: words with the times they could be written, and null where a sentence ends. */
export function timeline(state) {
  const at = ({ text, arrived }) => ({ text, at: Math.max(0, Math.round(arrived - state.began)) });
  return [...state.past.flatMap((sentence) => [...sentence.words.map(at), null]), ...state.words.map(at)];
}

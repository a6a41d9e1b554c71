// The state of the page as plain values; functions return the next state.

import { BREAK, mayEndSentence } from "./words.js";

const CAPTIONS = 3; // sentences; more than fit
const AHEAD = 40; // source words shown before they are read

/**
 * past: finished sentences, {source, words, lag, time (seconds until the first word)}. A word is
 * {text, delay, arrived}.
 * source, words: of the current sentence; source may go on into the next. before: source words of past sentences.
 * read: source words that the server has read, of all sentences. start: the time of the first word.
 */
export const empty = Object.freeze({ past: [], source: [], words: [], before: 0, read: 0, start: null });

export function addSourceWord(state, word, at) {
  if (word === BREAK) return state;
  return { ...state, source: [...state.source, word], start: state.start ?? at };
}

/** The state after an event of the connection. */
export function applyEvent(state, event) {
  switch (event.type) {
    case "read":
      return { ...state, read: Math.max(state.read, event.source) };
    case "word": {
      const { text, delay, arrived } = event;
      return { ...state, words: [...state.words, { text, delay, arrived }] };
    }
    case "end":
      return endSentence(state, event.source);
  }
  return state;
}

function endSentence(state, before) {
  const length = before - state.before;
  const { words } = state;
  const time = words.length ? (words[0].arrived - state.start) / 1000 : null; // seconds
  const sentence = { source: state.source.slice(0, length), words, lag: lagging(delays(words), length), time };
  return { ...state, past: [...state.past, sentence], source: state.source.slice(length), words: [], before };
}

export const delays = (words) => words.map((word) => word.delay);

/** Average lagging in source words. */
export function lagging(reads, length) {
  if (!reads.length || !length) return null;
  const ratio = length / reads.length;
  let total = 0;
  for (const [n, read] of reads.entries()) {
    total += read - n * ratio;
    if (read >= length) return total / (n + 1);
  }
  return total / reads.length;
}

export function meanLag(state) {
  const lags = state.past.map((sentence) => sentence.lag).filter((lag) => lag !== null);
  return lags.length ? lags.reduce((sum, lag) => sum + lag, 0) / lags.length : null;
}

/** Source words read in the current sentence. */
export const readInSentence = (state) => Math.min(Math.max(0, state.read - state.before), state.source.length);

/** The source words to show, and how many more there are: after a long paste, the translation stays in view. */
export function visibleSource(state) {
  const from = readInSentence(state);
  const ahead = state.source.slice(from, from + AHEAD);
  const end = ahead.findIndex(mayEndSentence);
  const shown = state.source.slice(0, from + (end < 0 ? ahead.length : end + 1));
  return { shown, more: state.source.length - shown.length };
}

/** Source words minus target words, from the current sentence on. */
export const wordsBehind = (state) => Math.max(0, state.source.length - state.words.length);

const texts = (words) => words.map((word) => word.text);

/** The last sentences of the translation, each a list of words, with the number of the first. */
export function captions(state) {
  const lines = [...state.past.slice(-CAPTIONS).map(({ words }) => texts(words)), texts(state.words)];
  return { first: Math.max(0, state.past.length - CAPTIONS), lines };
}

/** For subtitles: words with the times at which they could be written, and null at ends of sentences. */
export function timeline(state) {
  const at = ({ text, arrived }) => ({ text, at: Math.max(0, Math.round(arrived - state.start)) });
  return [...state.past.flatMap((sentence) => [...sentence.words.map(at), null]), ...state.words.map(at)];
}

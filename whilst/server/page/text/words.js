// Words of typed and pasted text. An empty word ends the sentence.

export const BREAK = "";
const MAX_WORD = 1000; // characters

function cut(word) {
  const letters = [...word];
  const pieces = [];
  for (let at = 0; at < letters.length; at += MAX_WORD) pieces.push(letters.slice(at, at + MAX_WORD).join(""));
  return pieces;
}

export const splitWords = (text) => text.split(/\s+/u).filter(Boolean).flatMap(cut);

/** The words that white space follows, and the rest, which is not complete. */
export function takeCompleteWords(text) {
  const end = text.search(/\S*$/u);
  return { words: splitWords(text.slice(0, end)), rest: text.slice(end) };
}

/** All words of a text; an empty line and the end of the text end a sentence. */
export function splitText(text) {
  return text.split(/\n[^\S\n]*(?:\n\s*)+/u).flatMap((part) => {
    const words = splitWords(part);
    return words.length ? [...words, BREAK] : [];
  });
}

/** A guess, for display only: the server decides where sentences end. */
export const mayEndSentence = (word) => word === BREAK || /[.!?。！？]["'”’»)\]]*$/u.test(word);

const CLOSING = /^[.,;:!?…%)\]}”’»。，！？]+$/u;
const OPENING = /^[([{“‘«]$/u;

/** The space between two words, if any: models of tokenised text write punctuation as words. */
export function separator(before, word) {
  return before === undefined || CLOSING.test(word) || OPENING.test(before) ? "" : " ";
}

export const join = (words) => words.map((word, n) => separator(words[n - 1], word) + word).join("");

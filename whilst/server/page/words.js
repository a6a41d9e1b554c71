// Words out of text: what is typed, and what is pasted. An empty word ends the sentence.

export const BREAK = "";
const LONGEST = 1000; // characters; more is no word

function cut(word) {
  const letters = [...word];
  const pieces = [];
  for (let at = 0; at < letters.length; at += LONGEST) pieces.push(letters.slice(at, at + LONGEST).join(""));
  return pieces;
}

const split = (text) => text.split(/\s+/u).filter(Boolean).flatMap(cut);

/** The words that white space follows, and the rest, which may still grow. */
export function complete(text) {
  const end = text.search(/\S*$/u);
  return { words: split(text.slice(0, end)), rest: text.slice(end) };
}

/** All words of a text; an empty line ends a sentence, and so does the end. */
export function script(text) {
  return text.split(/\n[^\S\n]*(?:\n\s*)+/u).flatMap((part) => {
    const words = split(part);
    return words.length ? [...words, BREAK] : [];
  });
}

/** Whether a sentence probably ends with this word. Only the page's looks depend on it: the server decides. */
export const seemsLast = (word) => word === BREAK || /[.!?。！？]["'”’»)\]]*$/u.test(word);

const CLOSING = /^[.,;:!?…%)\]}”’»。，！？]+$/u;
const OPENING = /^[([{“‘«]$/u;

/** What stands between two words: models that were trained on tokens write punctuation as words. */
export function gap(before, word) {
  return before === undefined || CLOSING.test(word) || OPENING.test(before) ? "" : " ";
}

export const join = (words) => words.map((word, n) => gap(words[n - 1], word) + word).join("");

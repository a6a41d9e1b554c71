// What was said, kept until its sentence is translated: a new session must hear the sentence under way again.
//
// A session of the server counts its messages, words and sentences from the start; the journal counts on over all
// sessions. Of a sentence that is told a second time, the words that were shown the first time are passed over:
// what was shown stays. Knows messages and numbers; no socket, no clock.

import { BREAK } from "./words.js";

// Messages on their way: more than the units of the longest sentence, so that its end is never waited for here.
const WINDOW = 256;

export class Journal {
  constructor() {
    this.items = []; // {word, at, number}: since the last sentence that ended; number counts source words
    this.dropped = 0; // items before these
    this.heard = 0; // source words
    this.before = 0; // those of sentences that ended
    this.sentences = 0; // that ended
    this.shown = 0; // words of the translation of the sentence under way
    this.restart();
  }

  /** A session begins and knows nothing: the sentence under way is told again. */
  restart() {
    this.next = this.dropped; // the item to send
    this.messages = []; // what each message ended with: {number, at}
    this.acked = 0;
    this.offset = this.before;
    this.first = this.sentences;
    this.repeated = this.shown; // words to pass over
  }

  /** Messages on their way. */
  get pending() {
    return this.messages.length - this.acked;
  }

  /** One more word; an empty one ends the sentence, if there is something to end. */
  add(word, at) {
    if (word === BREAK && (!this.items.length || this.items.at(-1).word === BREAK)) return;
    if (word !== BREAK) this.heard += 1;
    this.items.push({ word, at, number: this.heard });
  }

  /** The next message to send; null if there is none, or too many are on their way. */
  message() {
    const item = this.items[this.next - this.dropped];
    if (item === undefined || this.pending >= WINDOW) return null;
    this.next += 1;
    this.messages.push({ number: item.number, at: item.at });
    const seq = this.messages.length;
    return item.word === BREAK ? { type: "finish", seq } : { type: "words", seq, text: item.word };
  }

  /** What a commit says that was not known: words read, words written, sentences ended; in order. */
  commit(commit) {
    this.acked = Math.max(this.acked, commit.ack);
    const last = commit.words.reduce((most, word) => Math.max(most, word.source), 0);
    const events = [{ type: "read", source: Math.max(this.#ack(commit.ack).number, this.offset + last) }];
    const ends = [...commit.ends];
    for (const word of commit.words) {
      while (ends.length && ends[0].sentence < word.sentence) events.push(this.#end(ends.shift()));
      events.push(...this.#word(word, commit.ack));
    }
    return [...events, ...ends.map((end) => this.#end(end))];
  }

  #ack(seq) {
    return this.messages[seq - 1] ?? { number: this.offset, at: 0 };
  }

  #word({ text, source, delay }, ack) {
    if (this.repeated > 0) {
      this.repeated -= 1;
      return [];
    }
    this.shown += 1;
    // It could be written when its source word came, or when the sentence was ended.
    const item = this.items.find(({ number }) => number === this.offset + source);
    const arrived = Math.max(item?.at ?? 0, this.#ack(ack).at);
    return [{ type: "word", text, sentence: this.sentences, source: this.offset + source, delay, arrived }];
  }

  #end({ source, length }) {
    const number = this.sentences;
    this.before = this.offset + source;
    this.sentences += 1;
    this.shown = this.repeated = 0;
    while (this.items.length && this.items[0].number <= this.before) {
      this.items.shift(); // the words, and the mark that ended them
      this.dropped += 1;
    }
    this.next = Math.max(this.next, this.dropped);
    return { type: "end", sentence: number, source: this.before, length };
  }
}

// Source words, kept until their sentence is translated, so that a new session can receive them again.
//
// Each session of the server counts messages, words and sentences from 0; the journal counts over all sessions.
// When a sentence is sent again, the words of its translation that are shown already are skipped.

import { BREAK } from "../text/words.js";

const WINDOW = 256; // unacknowledged messages; more than the units of the longest sentence

export class Journal {
  constructor() {
    this.items = []; // {word, at, number} of sentences that have not ended; number counts source words
    this.dropped = 0; // items removed before these
    this.sourceWords = 0;
    this.endedWords = 0; // source words of the sentences that have ended
    this.sentences = 0; // that have ended
    this.written = 0; // target words of the current sentence
    this.limit = Infinity; // index of the first item that is held back
    this.startSession();
  }

  /** In a new session the current sentence is sent again. */
  startSession() {
    this.next = this.dropped; // index of the next item to send
    this.messages = []; // {number, at} of the last word of each message
    this.acked = 0;
    this.offset = this.endedWords;
    this.skip = this.written; // target words that are shown already
  }

  /** Unacknowledged messages. */
  get pending() {
    return this.messages.length - this.acked;
  }

  /** Add a word; an empty one ends the sentence, if it has words. */
  add(word, at) {
    if (word === BREAK && (!this.items.length || this.items.at(-1).word === BREAK)) return;
    if (word !== BREAK) this.sourceWords += 1;
    this.items.push({ word, at, number: this.sourceWords });
  }

  /** End the sentence, and send nothing more until `go`. */
  hold() {
    this.add(BREAK, 0);
    this.limit = this.dropped + this.items.length;
  }

  /** Whether all that was added before `hold` is translated. */
  get held() {
    return this.dropped >= this.limit;
  }

  go() {
    this.limit = Infinity;
  }

  /** The next message to send; null if there is none, or too many are unacknowledged. */
  nextMessage() {
    const item = this.items[this.next - this.dropped];
    if (item === undefined || this.pending >= WINDOW || this.next >= this.limit) return null;
    this.next += 1;
    this.messages.push({ number: item.number, at: item.at });
    const seq = this.messages.length;
    return item.word === BREAK ? { type: "finish", seq } : { type: "words", seq, text: item.word };
  }

  /** The new events of a commit in order: words read, words written, sentences ended. */
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
    if (this.skip > 0) {
      this.skip -= 1;
      return [];
    }
    this.written += 1;
    // The time of the source word that allowed it, or of the end of the sentence.
    const item = this.items.find(({ number }) => number === this.offset + source);
    const arrived = Math.max(item?.at ?? 0, this.#ack(ack).at);
    return [{ type: "word", text, sentence: this.sentences, source: this.offset + source, delay, arrived }];
  }

  #end({ source, length }) {
    const number = this.sentences;
    this.endedWords = this.offset + source;
    this.sentences += 1;
    this.written = this.skip = 0;
    while (this.items.length && this.items[0].number <= this.endedWords) {
      this.items.shift();
      this.dropped += 1;
    }
    this.next = Math.max(this.next, this.dropped);
    return { type: "end", sentence: number, source: this.endedWords, length };
  }
}

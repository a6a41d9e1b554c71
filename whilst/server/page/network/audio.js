// Keeps PCM until the server's words for it are final, so that a new session can receive it again.

import { RATE } from "../speech/recorder.js";

const AHEAD = 5 * RATE; // samples that are sent before the server has recognised them
const MAX_WAITING = 60 * RATE; // samples that are kept before the server has recognised them

export class AudioJournal {
  #blocks = []; // Int16Array each
  #next = 0; // index of the next block to send
  #sent = 0; // samples sent in the session
  #read = 0; // samples of these that the server has recognised
  #settled = 0; // samples of these whose words are final
  #said = ""; // final words of the audio after these
  #length = 0; // samples of all blocks
  #endSent = false;
  started = false; // whether the session has begun to receive the audio

  /** ended: no more audio follows. */
  constructor(ended = false) {
    this.ended = ended;
  }

  /** Samples that the server has not recognised. */
  get pending() {
    return this.#sent - this.#read;
  }

  /** Begin a new session; returns its first message. */
  startSession() {
    this.pause();
    this.started = true;
    return { type: "listen", said: this.#said };
  }

  /** End the session; the audio is kept for the next one. */
  pause() {
    [this.#next, this.#sent, this.#read, this.#settled] = [0, 0, 0, 0];
    [this.started, this.#endSent] = [false, false];
  }

  /** Keep a block; returns false if so much is waiting that the block is dropped. */
  add(block) {
    if (this.ended || this.#length - (this.#read - this.#settled) + block.length > MAX_WAITING) return false;
    this.#blocks.push(block);
    this.#length += block.length;
    return true;
  }

  /** No more audio follows. */
  end() {
    this.ended = true;
  }

  /** The next frame to send; the last one is empty. Null if there is none, or too much is not recognised yet. */
  nextFrame() {
    if (!this.started || this.pending >= AHEAD) return null;
    const block = this.#blocks[this.#next];
    if (block) {
      this.#next += 1;
      this.#sent += block.length;
      return block;
    }
    if (!this.ended || this.#endSent) return null;
    this.#endSent = true;
    return new Int16Array(0);
  }

  /** Apply a `heard` message of the server. */
  heard({ audio, settled, said }) {
    this.#read = audio;
    this.#said = said;
    for (let drop = settled - this.#settled; drop > 0; ) {
      const [first] = this.#blocks;
      const part = Math.min(drop, first.length);
      if (part < first.length) this.#blocks[0] = first.subarray(part);
      else {
        this.#blocks.shift();
        this.#next -= 1;
      }
      drop -= part;
      this.#length -= part;
    }
    this.#settled = settled;
  }
}

// PCM, kept until the server's words for it are final, so that a new session can receive it again.

import { RATE } from "../speech/recorder.js";

const AHEAD = 5 * RATE; // samples that are sent before the server has recognised them
const MAX_WAITING = 60 * RATE; // samples that are kept before the server has recognised them

export class AudioJournal {
  #blocks = []; // Int16Array each
  #next = 0; // index of the next block to send
  #sent = 0; // samples in the session
  #read = 0; // of these the server has recognised
  #settled = 0; // of these the words are final
  #said = ""; // words of the audio after these that are final
  #length = 0; // samples of all blocks
  #endSent = false;
  started = false; // in the session

  /** ended: no more follows. */
  constructor(ended = false) {
    this.ended = ended;
  }

  /** Samples that the server has not recognised. */
  get pending() {
    return this.#sent - this.#read;
  }

  /** In a new session: the message that comes first. */
  startSession() {
    this.pause();
    this.started = true;
    return { type: "listen", said: this.#said };
  }

  /** The session is over. */
  pause() {
    [this.#next, this.#sent, this.#read, this.#settled] = [0, 0, 0, 0];
    [this.started, this.#endSent] = [false, false];
  }

  /** False if so much waits already that this is not kept. */
  add(block) {
    if (this.ended || this.#length - (this.#read - this.#settled) + block.length > MAX_WAITING) return false;
    this.#blocks.push(block);
    this.#length += block.length;
    return true;
  }

  /** No more follows. */
  end() {
    this.ended = true;
  }

  /** The next frame to send, the last one empty; null if there is none, or too much is not recognised yet. */
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

  /** The server's answer. */
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

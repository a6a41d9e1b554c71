// An AudioWorklet: what the microphone hears, as PCM of 16 kHz in blocks of a tenth of a second.
//
// It resamples by itself: some browsers connect no microphone to an AudioContext of another rate.

export const RATE = 16000; // samples a second
const BLOCK = RATE / 10;

/** A moving average against aliasing, then linear interpolation. */
export class Resampler {
  #samples = new Float32Array(0);
  #place = 0; // of the next result, in the samples

  constructor(rate) {
    this.step = rate / RATE;
    this.width = Math.max(1, Math.round(this.step));
  }

  /** The results do not depend on how the samples are cut. */
  feed(samples) {
    const all = new Float32Array(this.#samples.length + samples.length);
    all.set(this.#samples);
    all.set(samples, this.#samples.length);
    const smooth = (at) => {
      let sum = 0;
      for (let n = at; n < at + this.width; n += 1) sum += all[n];
      return sum / this.width;
    };
    const last = all.length - this.width;
    const results = [];
    for (; this.#place <= last; this.#place += this.step) {
      const at = Math.floor(this.#place);
      const part = this.#place - at;
      results.push(part ? (1 - part) * smooth(at) + part * smooth(at + 1) : smooth(at));
    }
    const drop = Math.min(Math.floor(this.#place), all.length);
    this.#samples = all.slice(drop);
    this.#place -= drop;
    return results;
  }
}

export const toPcm = (samples) => Int16Array.from(samples, (value) => Math.max(-1, Math.min(1, value)) * 32767);

class Recorder extends (globalThis.AudioWorkletProcessor ?? Object) {
  #resampler = new Resampler(globalThis.sampleRate);
  #block = [];

  process([[samples]]) {
    if (samples) this.#block.push(...this.#resampler.feed(samples));
    if (this.#block.length >= BLOCK) this.port.postMessage(toPcm(this.#block.splice(0)));
    return true;
  }
}

globalThis.registerProcessor?.("recorder", Recorder);

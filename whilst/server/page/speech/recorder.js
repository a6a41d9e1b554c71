// An AudioWorklet that turns the microphone's audio into PCM of 16 kHz, in blocks of a tenth of a second.
//
// It resamples by itself: some browsers cannot connect a microphone to an AudioContext of another rate.

export const RATE = 16000; // samples a second
const BLOCK = RATE / 10;

/** Resamples to 16 kHz: a moving average against aliasing, then linear interpolation. */
export class Resampler {
  #samples = new Float32Array(0);
  #position = 0; // of the next result, in the samples

  constructor(rate) {
    this.step = rate / RATE;
    this.width = Math.max(1, Math.round(this.step));
  }

  /** The results do not depend on how the audio is divided into calls. */
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
    for (; this.#position <= last; this.#position += this.step) {
      const at = Math.floor(this.#position);
      const part = this.#position - at;
      results.push(part ? (1 - part) * smooth(at) + part * smooth(at + 1) : smooth(at));
    }
    const drop = Math.min(Math.floor(this.#position), all.length);
    this.#samples = all.slice(drop);
    this.#position -= drop;
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

// The microphone, whose speech the server recognises.

const ERROR_MESSAGES = {
  NotAllowedError: "The browser may not use the microphone: allow it in the address bar.",
  NotFoundError: "No microphone was found.",
  NotReadableError: "The microphone cannot be used: another program may have it.",
};
// Filters that help human listeners make a recogniser lose words (docs/log.md).
const AUDIO = { channelCount: 1, echoCancellation: false, noiseSuppression: false };
const UNPLUGGED = "The microphone gives no audio any more. What was said before is translated.";
const FULL = "More than a minute of speech waits for the server: what is said now is not kept.";

/** Returns a function that closes it. onBlock receives PCM; onGone is called if it is unplugged or forbidden. */
async function openMicrophone({ onBlock, onGone }) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: AUDIO });
  const context = new AudioContext();
  const close = () => {
    stream.getTracks().forEach((track) => track.stop());
    context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("./recorder.js", import.meta.url));
    const recorder = new AudioWorkletNode(context, "recorder", { channelCount: 1, channelCountMode: "explicit" });
    recorder.port.onmessage = ({ data }) => onBlock(data);
    // The recorder outputs silence: browsers run only nodes that lead to the destination.
    context.createMediaStreamSource(stream).connect(recorder).connect(context.destination);
    stream.getAudioTracks()[0].onended = onGone;
    await context.resume();
  } catch (error) {
    close();
    throw error;
  }
  return close;
}

/** Listens until stopped, like the Listener of speech.js; the words are events of the connection. */
export class Microphone {
  #close = null; // of the microphone; null: not listening

  constructor({ connection, onEnd, onNote, open = openMicrophone }) {
    Object.assign(this, { connection, onEnd, onNote, open });
  }

  get listening() {
    return this.#close !== null;
  }

  async start() {
    let stopped = false;
    const close = () => (stopped = true); // until the microphone is open
    this.#close = close;
    this.connection.listen();
    let full = false;
    const onBlock = (block) => {
      if (!this.listening) return;
      const kept = this.connection.sendAudio(block);
      if (!kept && !full) this.onNote(FULL);
      full = !kept;
    };
    const onGone = () => this.stop(UNPLUGGED);
    try {
      const opened = await this.open({ onBlock, onGone });
      if (stopped) opened();
      else this.#close = opened;
    } catch (error) {
      if (!stopped) this.stop(ERROR_MESSAGES[error.name] ?? `The microphone cannot be used: ${error.message}`);
    }
  }

  stop(reason = "") {
    if (!this.listening) return;
    this.close();
    this.connection.endAudio();
    this.onEnd(reason);
  }

  /** Close the microphone without ending the audio, as the server takes no more of it. */
  close() {
    this.#close?.();
    this.#close = null;
  }
}

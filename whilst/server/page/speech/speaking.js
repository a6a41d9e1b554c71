// The Speak button, and the choice between the recognisers of the server and of the browser.

import { languageTag } from "../text/address.js";
import { Microphone } from "./microphone.js";
import { Listener, Recognition } from "./speech.js";

const TITLES = {
  server: "Your speech is sent to this server only, and recognised there",
  browser: "The browser's speech recognition may send your speech to its maker",
};
const NO_RECOGNITION = "This browser has no speech recognition";
const INSECURE = "browsers give the microphone only to pages over https or on this machine (http://localhost)";

/** Returns {setRecogniser, ended}: call them with the server's `ready`, and when it has recognised all audio. */
export function connectSpeech({ node, addWord, connection, note }) {
  const [button, choice] = [node("speak"), node("recogniser")];
  let language = "en";
  let chosen = "server";
  let missing = NO_RECOGNITION; // why neither of them recognises speech
  const show = (text) => {
    button.setAttribute("aria-pressed", String(text === "Stop"));
    button.textContent = text;
    choice.disabled = text !== "Speak";
  };
  const finish = (reason) => {
    show("Speak");
    if (reason) note(reason);
  };
  // The last words are recognised after the microphone is closed.
  const finishing = (reason) => {
    finish(reason);
    button.disabled = connection.hearing;
  };
  const listeners = {
    server: new Microphone({ connection, onEnd: finishing, onNote: note }),
    browser: new Listener({ onWords: (words) => words.forEach(addWord), onEnd: finish }),
  };
  const available = { server: false, browser: Boolean(Recognition) };
  const draw = () => {
    const possible = Object.keys(available).filter((name) => available[name]);
    if (possible.length) choice.value = available[chosen] ? chosen : possible[0];
    choice.hidden = possible.length < 2;
    button.title = possible.length ? TITLES[choice.value] : missing;
  };
  choice.onchange = () => {
    chosen = choice.value;
    draw();
  };
  button.onclick = () => {
    const active = Object.values(listeners).find(({ listening }) => listening);
    if (active) return active.stop();
    note("");
    if (!available[choice.value]) return note(`${missing}.`);
    show("Stop");
    listeners[choice.value].start(language);
  };
  draw();
  return {
    setRecogniser(source, { available: here, reason }) {
      language = languageTag(source);
      available.server = here && isSecureContext;
      missing = `${NO_RECOGNITION}, and ${reason || INSECURE}`;
      draw();
    },
    ended() {
      button.disabled = false;
      listeners.server.close();
      if (!listeners.browser.listening) show("Speak");
    },
  };
}

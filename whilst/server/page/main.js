// The speaker's page. User input goes to the connection, whose events change the state, which is then drawn.

import { languageTag, readAddress } from "./text/address.js";
import { Announcer } from "./view/announcer.js";
import { Captions } from "./view/captions.js";
import { AUDIO_ERRORS, Connection } from "./network/connection.js";
import { connectControls } from "./controls/controls.js";
import { applyEvent, wordsBehind, captions, empty, addSourceWord, meanLag } from "./text/model.js";
import { Player } from "./controls/player.js";
import { drawStaircase } from "./view/staircase.js";
import { Transcript } from "./view/transcript.js";
import { splitWords } from "./text/words.js";

const address = readAddress(location.href);
const node = (id) => document.getElementById(id);
const STATES = {
  connecting: "Connecting…",
  open: "Connected",
  reconnecting: "Reconnecting…",
  idle: "Idle",
  stopped: "Not connected",
};

const PLACEHOLDER = node("input").placeholder;

let state = empty;
let partial = []; // recognised words that may still change
let language = ""; // of the translation
let lost = false; // whether the note says that the connection is lost
let drawScheduled = false;
let atEnd = true; // scrolled to the end; otherwise keep the position

const transcript = new Transcript({
  nodes: {
    past: node("finished"),
    source: node("source-words"),
    upcoming: node("upcoming"),
    target: node("target-words"),
  },
  onSelect: scheduleDraw,
});
const captionView = new Captions(node("captions"));
const announcer = new Announcer(node("log"));
const connection = new Connection({
  url: address.stream,
  latency: address.latency,
  model: address.model,
  token: address.token,
  onEvent: handleEvent,
});
const player = new Player({ onWord: addWord, onChange: scheduleDraw });

function addWord(word) {
  const now = performance.now();
  state = addSourceWord(state, word, now);
  connection.send(word, now);
  scheduleDraw();
}

function handleEvent(event) {
  if (event.type === "state") return showState(event.state);
  if (event.type === "ready") return showModel(event);
  if (event.type === "error") return showError(event);
  if (event.type === "heard") return hear(event);
  if (event.type === "word") announcer.add(event.text);
  state = applyEvent(state, event);
  scheduleDraw();
}

function hear({ words, partial: open, end }) {
  words.forEach(addWord);
  partial = splitWords(open);
  if (end) controls.speechEnded();
  scheduleDraw();
}

function showState(name) {
  document.body.dataset.state = name;
  node("state").firstElementChild.textContent = STATES[name];
  if (name === "open") node("token-form").hidden = true;
  if (name === "reconnecting" && !lost) {
    controls.note("The connection is lost. What you say is kept, and translated when it is back.");
    lost = true;
  }
}

function showModel(ready) {
  const { model } = ready;
  language = languageTag(model.target);
  transcript.setLanguages(languageTag(model.source), language);
  controls.setModel(ready);
  if (lost) controls.note("");
  lost = false;
}

function showError({ code, message, fatal }) {
  if (code === "shutdown") return; // handled as a lost connection
  if (code === "taken") return controls.taken(message);
  lost = fatal;
  if (AUDIO_ERRORS.has(code)) hear({ words: [], partial: "", end: true });
  if (code !== "unauthorized") return controls.note(`${message[0].toUpperCase()}${message.slice(1)}.`);
  controls.note(connection.token ? "The server expects another token." : "");
  node("token-form").hidden = false;
  node("token").focus();
}

function clear() {
  state = empty;
  partial = [];
  transcript.clear();
  announcer.clear();
  captionView.show({ first: 0, lines: [], language });
  connection.reset();
  scheduleDraw();
}

/** Draw once per animation frame. Hidden pages have none and draw at once, for other windows with captions. */
function scheduleDraw() {
  if (drawScheduled) return;
  drawScheduled = true;
  if (document.hidden) queueMicrotask(draw);
  else requestAnimationFrame(draw);
}

function draw() {
  drawScheduled = false;
  transcript.draw(state, [...partial, ...player.upcoming]);
  const stairs = transcript.staircase(state);
  drawStaircase(node("staircase"), stairs);
  node("staircase").setAttribute(
    "aria-label",
    `Sentence ${stairs.number + 1}: ${stairs.read} words read, ${stairs.reads.length} written`,
  );
  node("behind").textContent = wordsBehind(state);
  node("lag").textContent = meanLag(state)?.toFixed(1) ?? "–";
  const hasText = state.past.length + state.source.length > 0;
  const upcoming = player.left + partial.length;
  node("hint").hidden = hasText || upcoming > 0;
  node("input").placeholder = state.source.length + upcoming ? "" : PLACEHOLDER;
  if (hasText) captionView.show({ ...captions(state), language });
  controls.draw(state);
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
}

const page = { node, address, player, connection, captionView, addWord, clear, state: () => state };
const controls = connectControls(page);
// A page of captions may follow another window, so it connects only when its controls are used.
if (address.view === "captions") showState("idle");
else {
  connection.connect();
  if (!matchMedia("(pointer: coarse)").matches) node("input").focus(); // a virtual keyboard would hide the page
}
for (const kind of ["pointerenter", "focusin", "click"]) {
  document.querySelector("footer").addEventListener(kind, () => connection.wake());
}
const scroller = node("transcript");
scroller.onscroll = () => (atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40);
new ResizeObserver(scheduleDraw).observe(scroller);
document.addEventListener("visibilitychange", draw); // hidden pages have no animation frames
addEventListener("online", () => document.body.dataset.state === "reconnecting" && connection.connect());
scheduleDraw();

// The page: what people do goes to the connection, what it tells becomes the next state, the state is drawn.

import { languageName, languageTag, readAddress } from "./address.js";
import { Announcer } from "./announcer.js";
import { Captions } from "./captions.js";
import { Connection } from "./connection.js";
import { connectControls } from "./controls.js";
import { after, behind, captions, empty, heard, meanLag } from "./model.js";
import { Player } from "./player.js";
import { drawStaircase } from "./staircase.js";
import { Transcript } from "./transcript.js";

const address = readAddress(location.href);
const node = (id) => document.getElementById(id);
const STATES = {
  connecting: "Connecting…",
  open: "Connected",
  waiting: "Reconnecting…",
  asleep: "Asleep",
  stopped: "Not connected",
};

const PLACEHOLDER = node("input").placeholder;

let state = empty;
let language = ""; // of the translation
let trouble = false; // whether the note is about a connection that ended
let drawing = false;
let atEnd = true; // of the talk: who scrolls back wants to stay there

const transcript = new Transcript({
  nodes: { past: node("past"), said: node("said"), upcoming: node("upcoming"), written: node("written") },
  choose: plan,
});
const shown = new Captions(node("captions"));
const announcer = new Announcer(node("log"));
const connection = new Connection({
  url: address.stream,
  latency: address.latency,
  token: address.token,
  tell: hear,
});
const player = new Player({ say, changed: plan });

function say(word) {
  const now = performance.now();
  state = heard(state, word, now);
  connection.say(word, now);
  plan();
}

function hear(event) {
  if (event.type === "state") return showState(event.state);
  if (event.type === "ready") return introduce(event);
  if (event.type === "error") return complain(event);
  if (event.type === "word") announcer.add(event.text);
  state = after(state, event);
  plan();
}

function showState(name) {
  document.body.dataset.state = name;
  node("state").firstElementChild.textContent = STATES[name];
  if (name === "open") node("identify").hidden = true;
  if (name === "waiting" && !trouble) {
    controls.note("The connection is lost. What you say is kept, and translated when it is back.");
    trouble = true;
  }
}

function introduce({ model, latency, latencies }) {
  language = languageTag(model.target);
  node("pair").textContent = `${languageName(model.source)} → ${languageName(model.target)}`;
  transcript.speak(languageTag(model.source), language);
  controls.offer(latencies, latency, model.source);
  if (trouble) controls.note("");
  trouble = false;
}

function complain({ code, message, fatal }) {
  if (code === "shutdown") return; // as any other connection that is lost
  trouble = fatal;
  if (code !== "unauthorized") return controls.note(`${message[0].toUpperCase()}${message.slice(1)}.`);
  controls.note(connection.token ? "The server does not know this token." : "");
  node("identify").hidden = false;
  node("token").focus();
}

function clear() {
  state = empty;
  transcript.clear();
  announcer.clear();
  shown.show({ first: 0, lines: [], language });
  connection.reset();
  plan();
}

/** Draw once before the next picture, however much has happened. In the background there are none, but captions. */
function plan() {
  if (drawing) return;
  drawing = true;
  if (document.hidden) queueMicrotask(draw);
  else requestAnimationFrame(draw);
}

function draw() {
  drawing = false;
  transcript.draw(state, player.upcoming);
  const stairs = transcript.staircase(state);
  drawStaircase(node("staircase"), stairs);
  node("staircase").setAttribute(
    "aria-label",
    `Sentence ${stairs.number + 1}: ${stairs.read} words read, ${stairs.reads.length} written`,
  );
  node("behind").textContent = behind(state);
  node("lag").textContent = meanLag(state)?.toFixed(1) ?? "–";
  const begun = state.past.length + state.source.length > 0;
  node("hint").hidden = begun || player.left > 0;
  node("input").placeholder = state.source.length + player.left ? "" : PLACEHOLDER;
  if (begun) shown.show({ ...captions(state), language });
  controls.draw(state);
  if (atEnd) talk.scrollTop = talk.scrollHeight;
}

const controls = connectControls({ node, address, player, connection, shown, say, clear, state: () => state });
// Captions alone may only follow another window: they connect when someone comes to the buttons.
if (address.view === "captions") showState("asleep");
else {
  connection.connect();
  if (!matchMedia("(pointer: coarse)").matches) node("input").focus(); // else a keyboard may hide the rest
}
for (const kind of ["pointerenter", "focusin", "click"]) {
  document.querySelector("footer").addEventListener(kind, () => connection.wake());
}
const talk = node("talk");
talk.onscroll = () => (atEnd = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40);
new ResizeObserver(plan).observe(talk);
document.addEventListener("visibilitychange", draw); // what was planned may have to wait for ever
addEventListener("online", () => document.body.dataset.state === "waiting" && connection.connect());
plan();

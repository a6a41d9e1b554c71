// The watchers' page: all words of a published session, as they are written.

import { languageName, languageTag, readAddress } from "./text/address.js";
import { Announcer } from "./view/announcer.js";
import { Captions } from "./view/captions.js";
import { connectExports } from "./controls/export.js";
import { clock } from "./text/subtitles.js";
import { connectTheme } from "./controls/theme.js";
import { element } from "./view/transcript.js";
import { separator } from "./text/words.js";
import { Watch, sentences, timeline } from "./network/watching.js";

const address = readAddress(location.href);
const node = (id) => document.getElementById(id);
const obs = address.style === "obs";
const scroller = document.querySelector("main");
const announcer = new Announcer(node("log"));
const captionView = new Captions(node("captions"), { shared: false });
let size = address.size ?? null;
let atEnd = true;
let drawn = []; // {from: the array of words, count} of what the list shows
let scheduled = false;

const url = `${address.base.replace(/^http/u, "ws")}v1/watch/${address.name}`;
const watch = new Watch({ url, onChange: change });

const CAPTIONS = 3; // sentences; more than fit
const STATES = { live: "Live", waiting: "Not live", reconnecting: "Reconnecting…", stopped: "Not connected" };

function change(words) {
  words.forEach(({ text }) => announcer.add(text));
  if (scheduled) return;
  scheduled = true;
  setTimeout(draw, 50); // hidden pages have no animation frames
}

function draw() {
  scheduled = false;
  const { words, model, error } = watch;
  document.body.dataset.state = watch.state === "live" ? "open" : watch.state;
  node("state").firstElementChild.textContent = error || STATES[watch.state];
  if (model) node("pair").textContent = `${languageName(model.source)} → ${languageName(model.target)}`;
  const language = model ? languageTag(model.target) : "";
  node("hint").hidden = words.length > 0;
  for (const id of ["txt", "srt", "vtt"]) node(id).disabled = !words.length;
  if (obs) {
    const lines = sentences(words);
    captionView.draw({ first: Math.max(0, lines.length - CAPTIONS), lines: lines.slice(-CAPTIONS), language });
  } else drawList(words, language);
}

/** Append the new words. If they do not continue those in the list, draw all words. */
function drawList(words, language) {
  const list = node("sentences");
  list.lang = language;
  if (words !== drawn.from) list.replaceChildren();
  const start = words === drawn.from ? drawn.count : 0;
  for (let n = start; n < words.length; n += 1) {
    const { text, sentence, time } = words[n];
    if (!n || words[n - 1].sentence !== sentence) {
      const begin = element("time", { textContent: clock(time - words[0].time) });
      list.append(element("li", {}, begin, element("p")));
    }
    const line = list.lastElementChild.lastElementChild;
    const before = n && words[n - 1].sentence === sentence ? words[n - 1].text : undefined;
    line.append(separator(before, text), element("span", { className: "word", textContent: text }));
  }
  drawn = { from: words, count: words.length };
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
}

function resize(factor) {
  const shown = obs ? node("captions") : scroller;
  size = Math.round((size ?? parseFloat(getComputedStyle(shown).fontSize)) * factor);
  shown.style.fontSize = `${size}px`;
}

if (obs) {
  Object.assign(document.body.dataset, { style: "obs", view: "captions" });
  document.body.classList.add("transparent");
  if (address.lines) document.body.style.setProperty("--lines", address.lines);
}
if (size) resize(1);
node("smaller").onclick = () => resize(1 / 1.15);
node("larger").onclick = () => resize(1.15);
node("latest").onclick = () => (scroller.scrollTop = scroller.scrollHeight);
scroller.onscroll = () => {
  atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
  node("latest").hidden = atEnd;
};
new ResizeObserver(() => atEnd && (scroller.scrollTop = scroller.scrollHeight)).observe(scroller);
connectTheme(node("theme"), address.theme);
connectExports(node, address.name, () => timeline(watch.words));
document.title = `${address.name}: live translation`;
watch.connect();

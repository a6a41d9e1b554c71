// Buttons, the text field, and their settings.

import { languageName } from "../text/address.js";
import { connectExports, text } from "./export.js";
import { timeline } from "../text/model.js";
import { sampleIn } from "../text/sample.js";
import { connectShare } from "./share.js";
import { connectSpeech } from "../speech/speaking.js";
import { connectTheme } from "./theme.js";
import { element } from "../view/transcript.js";
import { BREAK, takeCompleteWords, splitText } from "../text/words.js";

const CONTROLS_VISIBLE = 3000; // milliseconds after the pointer has moved over the captions

function connectInput(input, { addWord, player }) {
  const send = (text) => {
    const { words, rest } = takeCompleteWords(text);
    words.forEach(addWord);
    if (input.value !== rest) input.value = rest;
  };
  input.oninput = ({ isComposing }) => isComposing || send(input.value);
  input.oncompositionend = () => send(input.value);
  input.onkeydown = (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    send(`${input.value} `);
    addWord(BREAK);
  };
  input.onpaste = (event) => {
    const text = event.clipboardData.getData("text/plain");
    if (!/\s\S/u.test(text.trim())) return; // a single word is handled as if typed
    event.preventDefault();
    send(`${input.value} `);
    player.add(splitText(text));
  };
  // A click beside the text focuses the text field, unless it selects text.
  input.parentElement.onclick = () => getSelection().isCollapsed && input.focus();
}

function connectLatency({ node, connection }) {
  const box = node("latency");
  box.onchange = ({ target }) => connection.setLatency(target.value);
  const option = (name, policy) => {
    const checked = name === connection.latency;
    const radio = element("input", { type: "radio", name: "latency", value: name, checked });
    return element("label", { title: policy }, radio, element("span", { textContent: name }));
  };
  // The options are rebuilt only if they differ, to keep the focus.
  return (latencies, current) => {
    const chosen = connection.latency;
    const named = latencies.some(({ name }) => name === chosen);
    const options = named ? latencies : [...latencies, { name: chosen, policy: current }];
    const radios = [...box.querySelectorAll("input")];
    if (radios.map(({ value }) => value).join() === options.map(({ name }) => name).join()) {
      for (const [n, radio] of radios.entries()) {
        radio.checked = radio.value === chosen;
        radio.parentElement.title = options[n].policy;
      }
    } else box.replaceChildren(box.firstElementChild, ...options.map(({ name, policy }) => option(name, policy)));
  };
}

function connectCaptions({ node, address, captionView }) {
  const { body } = document;
  let size = address.size;
  let timer;
  const resize = (factor) => {
    size = Math.round((size ?? parseFloat(getComputedStyle(node("captions")).fontSize)) * factor);
    node("captions").style.fontSize = `${size}px`;
  };
  const show = (on) => {
    body.dataset.view = on ? "captions" : "transcript";
    node("toggle-captions").textContent = on ? "Back" : "Captions";
    if (on) captionView.follow();
  };
  if (size) resize(1);
  body.classList.toggle("transparent", address.transparent);
  node("smaller").onclick = () => resize(1 / 1.15);
  node("larger").onclick = () => resize(1.15);
  node("toggle-captions").onclick = () => {
    const on = body.dataset.view !== "captions";
    show(on);
    // Where full screen is not allowed the captions fill the window.
    if (on) document.documentElement.requestFullscreen?.().catch(() => {});
    else if (document.fullscreenElement) document.exitFullscreen();
  };
  document.onfullscreenchange = () => document.fullscreenElement || show(false);
  addEventListener("keydown", ({ key }) => key === "Escape" && body.dataset.view === "captions" && show(false));
  addEventListener("pointermove", () => {
    body.classList.add("controls-visible");
    clearTimeout(timer);
    timer = setTimeout(() => body.classList.remove("controls-visible"), CONTROLS_VISIBLE);
  });
  show(address.view === "captions");
}

/** Returns a function that sets the source language. */
function connectPlayer({ node, address, player, addWord, state }) {
  let sample = null; // set with the language
  let playWhenKnown = false;
  const pace = node("pace");
  if (address.pace && ![...pace.options].some(({ value }) => Number(value) === address.pace)) {
    pace.prepend(element("option", { value: address.pace, textContent: `${address.pace} words/s` }));
  }
  if (address.pace) pace.value = address.pace;
  player.pace = Number(pace.value);
  pace.onchange = () => (player.pace = Number(pace.value));
  const begin = () => {
    if (state().source.length) addWord(BREAK); // text typed before becomes a sentence of its own
    player.add(splitText(sample));
  };
  node("play").onclick = () => {
    if (player.playing) player.pause();
    else if (player.left) player.resume();
    else if (sample === null) playWhenKnown = true;
    else begin();
  };
  return (language) => {
    sample = sampleIn(language);
    node("play").title = sample ? "" : `There is no sample in ${languageName(language)}: type or paste text`;
    if (playWhenKnown) begin();
    playWhenKnown = false;
  };
}

function connectOutput({ node, note, state }) {
  node("copy").onclick = async () => {
    try {
      await navigator.clipboard.writeText(text(timeline(state())));
      note("Copied.");
    } catch {
      note("The browser does not let this page copy: select the text instead."); // without TLS, it has no clipboard
    }
  };
  connectExports(node, "whilst", () => timeline(state()));
}

/** Returns a function that sets the models of the server and the model of the session. */
function connectModels({ node, connection, player }) {
  const box = node("model");
  box.onchange = () => {
    player.clear();
    connection.setModel(box.value);
  };
  return (models, model) => {
    const pair = ({ source, target }) => `${languageName(source)} → ${languageName(target)}`;
    node("pair").textContent = pair(model);
    node("pair").hidden = models.length > 1;
    box.hidden = models.length < 2;
    const options = models.map((entry) => element("option", { value: entry.name, textContent: pair(entry) }));
    if (box.options.length !== models.length) box.replaceChildren(...options);
    box.value = model.name;
  };
}

/** Returns functions to draw a state, show a note, and handle a taken name, the end of speech and `ready`. */
export function connectControls(page) {
  const { node, address, player, connection, clear } = page;
  const note = (text) => (node("note").textContent = text);
  const parts = { ...page, note };
  connectInput(node("input"), parts);
  const setPlayer = connectPlayer(parts);
  connectOutput(parts);
  connectCaptions(parts);
  connectTheme(node("theme"), address.theme);
  const speech = connectSpeech(parts);
  const setLatencies = connectLatency(parts);
  const setModels = connectModels(parts);
  const taken = connectShare(parts);
  node("clear").onclick = () => {
    player.clear();
    note("");
    clear();
    node("input").focus();
  };
  node("token-form").onsubmit = (event) => {
    event.preventDefault();
    note("");
    connection.setToken(node("token").value);
  };
  return {
    note,
    taken,
    speechEnded: speech.ended,
    setModel({ models, model, latencies, latency, speech: recogniser }) {
      speech.setRecogniser(model.source, recogniser);
      setPlayer(model.source);
      setLatencies(latencies, latency);
      setModels(models, model);
    },
    draw({ past, source, words }) {
      const written = words.length > 0 || past.some((sentence) => sentence.words.length);
      for (const id of ["copy", "txt", "srt", "vtt"]) node(id).disabled = !written;
      node("clear").disabled = !past.length && !source.length && !player.left;
      node("play").disabled = Boolean(node("play").title) && !player.left;
      node("play").textContent = player.playing ? "Pause" : player.left ? "Resume" : "Play a sample";
    },
  };
}

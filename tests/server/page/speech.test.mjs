import assert from "node:assert/strict";
import { test } from "node:test";
import { Player } from "./controls/player.js";
import { Agreement, Listener } from "./speech/speech.js";

test("a word is final when two partial results agree on it", () => {
  const partials = new Agreement();
  assert.deepEqual(partials.addPartial("I"), []);
  assert.deepEqual(partials.addPartial("I wand"), ["I"]);
  assert.deepEqual(partials.addPartial("I want to"), []);
  assert.deepEqual(partials.addPartial("I want to go"), ["want", "to"]);
  assert.deepEqual(partials.addPartial("I want"), []);
  assert.deepEqual(partials.final("I want to go home"), ["go", "home", ""]);
  assert.deepEqual(partials.addPartial("Next"), []);
  assert.deepEqual(partials.final("Next one"), ["Next", "one", ""]);
  assert.deepEqual(partials.end(), []);
  partials.addPartial("good morning my");
  assert.deepEqual(partials.addPartial("good morning my friends"), ["good", "morning", "my"]);
  assert.deepEqual(partials.end(), ["friends", ""], "the last partial result");
  assert.deepEqual(partials.final("today"), ["today", ""], "no word of the next utterance is lost");
});

class Recogniser {
  static all = [];
  constructor() {
    Recogniser.all.push(this);
  }
  start() {
    this.starts = (this.starts ?? 0) + 1;
  }
  stop() {
    this.onend();
  }
  report(...results) {
    const listed = results.map(([transcript, isFinal]) => Object.assign([{ transcript }], { isFinal }));
    this.onresult({ resultIndex: 0, results: listed });
  }
}

test("a listener restarts when the browser stops, unless there is an error", () => {
  const [words, ends] = [[], []];
  const onWords = (found) => words.push(...found);
  const listener = new Listener({ onWords, onEnd: (reason) => ends.push(reason), Recogniser });
  listener.start("en");
  const [recogniser] = Recogniser.all;
  assert.deepEqual([recogniser.lang, recogniser.continuous, recogniser.interimResults], ["en", true, true]);
  recogniser.report(["good", false], [" morning", false]);
  recogniser.report(["good morning everyone", false]);
  recogniser.report(["good morning everybody", true]);
  assert.deepEqual(words, ["good", "morning", "everybody", ""]);
  recogniser.onerror({ error: "no-speech" });
  recogniser.onend();
  assert.equal(recogniser.starts, 2);
  listener.stop();
  assert.deepEqual(ends, [""]);
  listener.start("en");
  Recogniser.all[1].onerror({ error: "not-allowed" });
  Recogniser.all[1].onend();
  assert.match(ends[1], /microphone/u);
  assert.equal(listener.listening, false);
});

test("a player gives one word at a time, pauses and resumes", () => {
  const played = [];
  const timers = [];
  const player = new Player({
    onWord: (word) => played.push(word), onChange: () => {},
    setTimer: (call, pause) => timers.push({ call, pause }), clearTimer: () => timers.splice(0),
  });
  player.add(["a", "b.", "", "c", ""]);
  assert.deepEqual([played, player.upcoming, timers[0].pause], [["a"], ["b."], 1000 / 3]);
  timers.pop().call();
  assert.deepEqual(played, ["a", "b.", ""], "a break takes no time");
  player.pause();
  assert.deepEqual([timers.length, player.playing, player.left], [0, false, 2]);
  player.resume();
  assert.deepEqual([played.at(-2), played.at(-1), player.left], ["c", "", 0]);
  timers.pop().call();
  assert.equal(player.playing, false);
  player.pace = Infinity;
  player.add(["d", "e", ""]);
  assert.deepEqual([played.slice(-3), player.playing], [["d", "e", ""], false]);
  player.add(["f", "g"]);
  player.clear();
  assert.deepEqual([player.left, player.playing], [0, false]);
});

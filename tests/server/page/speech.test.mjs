import assert from "node:assert/strict";
import { test } from "node:test";
import { Player } from "./player.js";
import { Agreement, Listener } from "./speech.js";

test("a word that is heard counts when two guesses agree on it", () => {
  const guesses = new Agreement();
  assert.deepEqual(guesses.guess("I"), []);
  assert.deepEqual(guesses.guess("I wand"), ["I"]);
  assert.deepEqual(guesses.guess("I want to"), []);
  assert.deepEqual(guesses.guess("I want to go"), ["want", "to"]);
  assert.deepEqual(guesses.guess("I want"), []);
  assert.deepEqual(guesses.final("I want to go home"), ["go", "home", ""]);
  assert.deepEqual(guesses.guess("Next"), []);
  assert.deepEqual(guesses.final("Next one"), ["Next", "one", ""]);
  assert.deepEqual(guesses.end(), []);
  guesses.guess("good morning my");
  assert.deepEqual(guesses.guess("good morning my friends"), ["good", "morning", "my"]);
  assert.deepEqual(guesses.end(), ["friends", ""], "the last guess, where nothing final came");
  assert.deepEqual(guesses.final("today"), ["today", ""], "and no word of the next is lost");
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
  hear(...results) {
    const listed = results.map(([transcript, isFinal]) => Object.assign([{ transcript }], { isFinal }));
    this.onresult({ resultIndex: 0, results: listed });
  }
}

test("a listener goes on when the browser stops by itself, and says why it cannot", () => {
  const [words, ends] = [[], []];
  const hear = (heard) => words.push(...heard);
  const listener = new Listener({ hear, ended: (why) => ends.push(why), Recogniser });
  listener.start("en");
  const [recogniser] = Recogniser.all;
  assert.deepEqual([recogniser.lang, recogniser.continuous, recogniser.interimResults], ["en", true, true]);
  recogniser.hear(["good", false], [" morning", false]);
  recogniser.hear(["good morning everyone", false]);
  recogniser.hear(["good morning everybody", true]);
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

test("a player says a word at a time, pauses and goes on", () => {
  const said = [];
  const timers = [];
  const player = new Player({
    say: (word) => said.push(word), changed: () => {},
    later: (call, pause) => timers.push({ call, pause }), never: () => timers.splice(0),
  });
  player.add(["a", "b.", "", "c", ""]);
  assert.deepEqual([said, player.upcoming, timers[0].pause], [["a"], ["b."], 1000 / 3]);
  timers.pop().call();
  assert.deepEqual(said, ["a", "b.", ""], "an end takes no time");
  player.pause();
  assert.deepEqual([timers.length, player.playing, player.left], [0, false, 2]);
  player.resume();
  assert.deepEqual([said.at(-2), said.at(-1), player.left], ["c", "", 0]);
  timers.pop().call();
  assert.equal(player.playing, false);
  player.pace = Infinity;
  player.add(["d", "e", ""]);
  assert.deepEqual([said.slice(-3), player.playing], [["d", "e", ""], false]);
  player.add(["f", "g"]);
  player.clear();
  assert.deepEqual([player.left, player.playing], [0, false]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { languageName, languageTag, readAddress } from "./text/address.js";
import { sampleIn } from "./text/sample.js";
import { takeCompleteWords, separator, join, splitText, mayEndSentence } from "./text/words.js";

test("a word is complete when white space follows", () => {
  assert.deepEqual(takeCompleteWords("Hello"), { words: [], rest: "Hello" });
  assert.deepEqual(takeCompleteWords("Hello, wor"), { words: ["Hello,"], rest: "wor" });
  assert.deepEqual(takeCompleteWords(" one\u00a0two\n"), { words: ["one", "two"], rest: "" });
  assert.deepEqual(takeCompleteWords(""), { words: [], rest: "" });
});

test("an empty line ends a sentence, a line break does not", () => {
  assert.deepEqual(splitText("a b\nc\n \n\nd\r\n\r\ne"), ["a", "b", "c", "", "d", "", "e", ""]);
  assert.deepEqual(splitText(" \n\n "), []);
});

test("long words are split between characters", () => {
  const pieces = splitText("😀".repeat(1500));
  assert.deepEqual(pieces.map((piece) => [...piece].length), [1000, 500, 0]);
});

test("no space around punctuation", () => {
  assert.equal(join(["Xin", "chào", ",", "(", "bạn", ")", "!", "3", "%"]), "Xin chào, (bạn)! 3%");
  assert.equal(separator(undefined, "a"), "");
});

test("sentences may end at punctuation", () => {
  assert.deepEqual(["end.", "end.”", "", "end", "3.5"].map(mayEndSentence), [true, true, true, false, false]);
});

test("the sample is a talk of ten sentences, one a line", () => {
  const lines = sampleIn("en-GB").split("\n");
  assert.equal(lines.length, 10);
  assert.equal(sampleIn("xx"), "");
  for (const line of lines) assert.deepEqual(line.split(" ").filter(mayEndSentence), [line.split(" ").at(-1)]);
});

test("languages", () => {
  assert.deepEqual(["en", "vi", "src", "x y"].map(languageName), ["English", "Vietnamese", "src", "x y"]);
  assert.deepEqual(["en", "zh_TW", "src", ""].map(languageTag), ["en", "zh-TW", "", ""]);
});

test("the address", () => {
  const plain = readAddress("https://host:1/");
  assert.deepEqual(plain, {
    latency: "medium", view: "transcript", size: null, pace: null, transparent: false, theme: null, token: "",
    base: "https://host:1/", stream: "wss://host:1/v1/stream", name: "", model: "", publish: "", style: "", lines: null,
  });
  const long = "?latency=agent-3&size=9999&background=none&theme=dark&pace=5&publish=talk&model=vi-en#token=x%26y";
  const watch = readAddress("https://host/a/watch/talk?style=obs&lines=2");
  assert.deepEqual([watch.base, watch.name, watch.style, watch.lines], ["https://host/a/", "talk", "obs", 2]);
  const full = readAddress(`http://host/a/captions${long}`);
  assert.deepEqual(full, {
    latency: "agent-3", view: "captions", size: 300, pace: 5, transparent: true, theme: "dark", token: "x&y",
    base: "http://host/a/", stream: "ws://host/a/v1/stream", name: "captions", model: "vi-en", publish: "talk",
    style: "", lines: null,
  });
  assert.equal(readAddress("http://host/?view=captions&size=big&theme=pink").size, null);
  assert.equal(readAddress("http://host/?view=captions").view, "captions");
});

// Downloads of a translation. A timeline has {text, at} for each word, and null where a sentence ends.

import { srt, vtt } from "../text/subtitles.js";
import { element } from "../view/transcript.js";
import { join } from "../text/words.js";

/** One sentence per line. */
export function text(timeline) {
  const lines = [[]];
  for (const entry of timeline) {
    if (entry) lines.at(-1).push(entry.text);
    else lines.push([]);
  }
  return lines.filter((words) => words.length).map((words) => `${join(words)}\n`).join("");
}

const KINDS = { txt: ["text/plain", text], srt: ["application/x-subrip", srt], vtt: ["text/vtt", vtt] };

/** Buttons whose ids are the kinds of file. */
export function connectExports(node, name, timeline) {
  for (const [kind, [type, write]] of Object.entries(KINDS)) {
    node(kind).onclick = () => {
      const href = URL.createObjectURL(new Blob([write(timeline())], { type }));
      element("a", { download: `${name}.${kind}`, href }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60000);
    };
  }
}

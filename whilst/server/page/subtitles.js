// Subtitles from words with times: the same cues as whilst/subtitles.py makes (tests compare the two).
// Times are whole milliseconds.

const WIDTH = 42;
const LINES = 2; // what a screen and an eye take
const LEAST = 1000; // a cue shorter than this cannot be read
const LINGER = 1000; // how long a cue stays after its last word, if no other wants its place
const SILENCE = 3000; // a pause after which the next word is a new cue
const MOST = 7000; // as long a cue may grow

const size = (text) => [...text].length; // characters, as Python counts them

function wrap(words) {
  const lines = [];
  for (const word of words) {
    const line = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && size(line) <= WIDTH) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  return lines;
}

function pieces(word) {
  const letters = [...word];
  const count = Math.ceil(letters.length / WIDTH);
  return Array.from({ length: count }, (_, n) => letters.slice(n * WIDTH, (n + 1) * WIDTH).join(""));
}

/** Cues {begin, end, lines} of a timeline: {text, at} for a word, null where a sentence ends. */
export function cues(timeline) {
  const found = [];
  let words = [];
  let [begin, last, free] = [0, 0, 0];
  const close = (at) => {
    const late = Math.max(begin, last) + LINGER;
    const end = at === null ? late : Math.max(begin + LEAST, Math.min(at, late));
    found.push({ begin, end, lines: wrap(words) });
    words = [];
    free = end;
  };
  for (const entry of timeline) {
    if (entry === null) {
      if (words.length) close(null);
      continue;
    }
    const at = Math.max(entry.at, last);
    for (const piece of pieces(entry.text)) {
      const late = at - last > SILENCE || at - begin > MOST;
      if (words.length && (late || wrap([...words, piece]).length > LINES)) close(at);
      if (!words.length) begin = Math.max(at, free);
      words.push(piece);
      last = at;
    }
  }
  if (words.length) close(null);
  return found;
}

const two = (number) => String(Math.floor(number)).padStart(2, "0");

/** Such as 00:01:02,345. */
export function clock(ms, mark) {
  const rest = String(ms % 1000).padStart(3, "0");
  return `${two(ms / 3600000)}:${two((ms / 60000) % 60)}:${two((ms / 1000) % 60)}${mark}${rest}`;
}

export function srt(timeline) {
  return cues(timeline)
    .map(({ begin, end, lines }, n) => {
      const text = lines.join("\n").replaceAll("-->", "→"); // an arrow would look like a line of times
      return `${n + 1}\n${clock(begin, ",")} --> ${clock(end, ",")}\n${text}\n\n`;
    })
    .join("");
}

export function vtt(timeline) {
  const shown = cues(timeline).map(({ begin, end, lines }) => {
    const text = lines.join("\n").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    return `${clock(begin, ".")} --> ${clock(end, ".")}\n${text}\n\n`;
  });
  return ["WEBVTT\n\n", ...shown].join("");
}

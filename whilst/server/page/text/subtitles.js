// Subtitles from words with times: the same cues as those of whilst/live/output.py (compared in tests).
// Times are whole milliseconds.

const LINE_WIDTH = 42;
const MAX_LINES = 2;
const MIN_DURATION = 1000; // of a cue
const LINGER = 1000; // how long a cue stays after its last word, unless the next one begins
const MAX_PAUSE = 3000; // between words of one cue
const MAX_DURATION = 7000; // from a cue's first word to its last

const size = (text) => [...text].length; // characters, as Python counts them

function wrap(words) {
  const lines = [];
  for (const word of words) {
    const line = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && size(line) <= LINE_WIDTH) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  return lines;
}

function pieces(word) {
  const letters = [...word];
  const count = Math.ceil(letters.length / LINE_WIDTH);
  return Array.from({ length: count }, (_, n) => letters.slice(n * LINE_WIDTH, (n + 1) * LINE_WIDTH).join(""));
}

/** Cues {begin, end, lines} of a timeline: {text, at} for a word, null where a sentence ends. */
export function cues(timeline) {
  const result = [];
  let words = [];
  let [begin, last, previousEnd] = [0, 0, 0];
  const close = (at) => {
    const latest = Math.max(begin, last) + LINGER;
    const end = at === null ? latest : Math.max(begin + MIN_DURATION, Math.min(at, latest));
    result.push({ begin, end, lines: wrap(words) });
    words = [];
    previousEnd = end;
  };
  for (const entry of timeline) {
    if (entry === null) {
      if (words.length) close(null);
      continue;
    }
    const at = Math.max(entry.at, last);
    for (const piece of pieces(entry.text)) {
      const late = at - last > MAX_PAUSE || at - begin > MAX_DURATION;
      if (words.length && (late || wrap([...words, piece]).length > MAX_LINES)) close(at);
      if (!words.length) begin = Math.max(at, previousEnd);
      words.push(piece);
      last = at;
    }
  }
  if (words.length) close(null);
  return result;
}

const twoDigits = (number) => String(Math.floor(number)).padStart(2, "0");

/** Such as 00:01:02,345. */
export function formatTime(ms, mark) {
  const rest = String(ms % 1000).padStart(3, "0");
  return `${twoDigits(ms / 3600000)}:${twoDigits((ms / 60000) % 60)}:${twoDigits((ms / 1000) % 60)}${mark}${rest}`;
}

/** Such as 1:02, for people. */
export const clock = (seconds) => `${Math.floor(seconds / 60)}:${twoDigits(seconds % 60)}`;

export function srt(timeline) {
  return cues(timeline)
    .map(({ begin, end, lines }, n) => {
      const text = lines.join("\n").replaceAll("-->", "→"); // "-->" marks a line of times
      return `${n + 1}\n${formatTime(begin, ",")} --> ${formatTime(end, ",")}\n${text}\n\n`;
    })
    .join("");
}

export function vtt(timeline) {
  const shown = cues(timeline).map(({ begin, end, lines }) => {
    const text = lines.join("\n").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    return `${formatTime(begin, ".")} --> ${formatTime(end, ".")}\n${text}\n\n`;
  });
  return ["WEBVTT\n\n", ...shown].join("");
}

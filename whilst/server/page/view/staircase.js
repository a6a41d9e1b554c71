// The staircase of one sentence: right for each word read, up for each word written.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 240; // of the viewBox
const MARGIN = { left: 22, right: 8, top: 8, bottom: 22 };
const MIN_WORDS = 8; // on an axis

/** The corners [read, written]; reads: source words read before each target word. */
export function corners(reads, read) {
  const points = [[0, 0]];
  for (const [n, at] of reads.entries()) points.push([at, n], [at, n + 1]);
  return [...points, [Math.max(read, reads.at(-1) ?? 0), reads.length]];
}

/** Positions of at most five grid lines. */
export function ticks(end) {
  const step = [1, 2, 5, 10, 20, 50].find((size) => end / size <= 5) ?? 100;
  return Array.from({ length: Math.floor(end / step) }, (_, n) => (n + 1) * step);
}

function appendShape(parent, name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
}

const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawAxes(svg, end, toPoint) {
  for (const tick of ticks(end)) {
    appendShape(svg, "path", { class: "grid", d: path([toPoint([tick, 0]), toPoint([tick, end])]) });
    appendShape(svg, "path", { class: "grid", d: path([toPoint([0, tick]), toPoint([end, tick])]) });
    const [[x, low], [near, y]] = [toPoint([tick, 0]), toPoint([0, tick])];
    appendShape(svg, "text", { x, y: low + 6, "text-anchor": "middle", "dominant-baseline": "hanging" }, tick);
    appendShape(svg, "text", { x: near - 6, y, "text-anchor": "end", "dominant-baseline": "central" }, tick);
  }
  const [[left, top], [right, bottom]] = [toPoint([0, end]), toPoint([end, 0])];
  appendShape(svg, "text", { class: "name", x: left + 6, y: top + 8 }, "written");
  appendShape(svg, "text", { class: "name", x: right, y: bottom - 6, "text-anchor": "end" }, "read");
  appendShape(svg, "path", { class: "axes", d: path([toPoint([0, end]), toPoint([0, 0]), toPoint([end, 0])]) });
}

/** Draw into an svg element. length: source words of a finished sentence, else null. */
export function drawStaircase(svg, { reads, read, length }) {
  const end = Math.max(MIN_WORDS, read, reads.length);
  const width = SIZE - MARGIN.left - MARGIN.right;
  const height = SIZE - MARGIN.top - MARGIN.bottom;
  const toPoint = ([x, y]) => [MARGIN.left + (x / end) * width, SIZE - MARGIN.bottom - (y / end) * height];
  const points = corners(reads, read);
  // The ratio of target to source words; 1 until the lengths are known.
  const ratio = length && reads.length ? reads.length / length : 1;
  const [right, top] = [points.at(-1)[0], Math.min(end, points.at(-1)[0] * ratio)];
  svg.setAttribute("viewBox", `0 0 ${SIZE} ${SIZE}`);
  svg.replaceChildren();
  drawAxes(svg, end, toPoint);
  appendShape(svg, "path", { class: "lag", d: path([...points, [right, top]].map(toPoint)) + "Z" });
  const far = ratio > 1 ? [end / ratio, end] : [end, end * ratio];
  appendShape(svg, "path", { class: "even", d: path([[0, 0], far].map(toPoint)) });
  appendShape(svg, "path", { class: "steps", d: path(points.map(toPoint)) });
  const [cx, cy] = toPoint(points.at(-1));
  if (length === null && right) appendShape(svg, "circle", { class: "head", cx, cy, r: 4 });
}

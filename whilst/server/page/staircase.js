// The staircase of one sentence: to the right for each word read, up for each word written.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 240; // of the drawing, whatever its size on the page
const EDGE = { left: 22, right: 8, top: 8, bottom: 22 };
const LEAST = 8; // words that an axis has

/** The corners of the staircase: [read, written]. reads: how much was read when each word was written. */
export function corners(reads, read) {
  const points = [[0, 0]];
  for (const [n, at] of reads.entries()) points.push([at, n], [at, n + 1]);
  return [...points, [Math.max(read, reads.at(-1) ?? 0), reads.length]];
}

/** Where grid lines are drawn: at most five. */
export function ticks(end) {
  const step = [1, 2, 5, 10, 20, 50].find((size) => end / size <= 5) ?? 100;
  return Array.from({ length: Math.floor(end / step) }, (_, n) => (n + 1) * step);
}

function draw(parent, name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
}

const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function drawAxes(svg, end, place) {
  for (const tick of ticks(end)) {
    draw(svg, "path", { class: "grid", d: path([place([tick, 0]), place([tick, end])]) });
    draw(svg, "path", { class: "grid", d: path([place([0, tick]), place([end, tick])]) });
    const [[x, low], [near, y]] = [place([tick, 0]), place([0, tick])];
    draw(svg, "text", { x, y: low + 6, "text-anchor": "middle", "dominant-baseline": "hanging" }, tick);
    draw(svg, "text", { x: near - 6, y, "text-anchor": "end", "dominant-baseline": "central" }, tick);
  }
  const [[left, top], [right, bottom]] = [place([0, end]), place([end, 0])];
  draw(svg, "text", { class: "name", x: left + 6, y: top + 8 }, "written");
  draw(svg, "text", { class: "name", x: right, y: bottom - 6, "text-anchor": "end" }, "read");
  draw(svg, "path", { class: "axes", d: path([place([0, end]), place([0, 0]), place([end, 0])]) });
}

/** Draws into an svg element. length: the sentence's source words if it is over, else null. */
export function drawStaircase(svg, { reads, read, length }) {
  const end = Math.max(LEAST, read, reads.length);
  const width = SIZE - EDGE.left - EDGE.right;
  const height = SIZE - EDGE.top - EDGE.bottom;
  const place = ([x, y]) => [EDGE.left + (x / end) * width, SIZE - EDGE.bottom - (y / end) * height];
  const points = corners(reads, read);
  // Even pace: one word for each until the lengths are known.
  const pace = length && reads.length ? reads.length / length : 1;
  const [right, top] = [points.at(-1)[0], Math.min(end, points.at(-1)[0] * pace)];
  svg.setAttribute("viewBox", `0 0 ${SIZE} ${SIZE}`);
  svg.replaceChildren();
  drawAxes(svg, end, place);
  draw(svg, "path", { class: "lag", d: path([...points, [right, top]].map(place)) + "Z" });
  const far = pace > 1 ? [end / pace, end] : [end, end * pace];
  draw(svg, "path", { class: "even", d: path([[0, 0], far].map(place)) });
  draw(svg, "path", { class: "steps", d: path(points.map(place)) });
  const [cx, cy] = place(points.at(-1));
  if (length === null && right) draw(svg, "circle", { class: "head", cx, cy, r: 4 });
}

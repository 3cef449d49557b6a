// Charts as SVG: lines over steps, and the timeline of phases. Colours come from the style sheet.
import { el, svg, short, span, when } from "./parts.js";
import { axes, axis, smoothed } from "./axes.js";

// The width decides how large text is: on small screens a chart has fewer units.
const W = innerWidth < 700 ? 340 : 640, H = 220, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 26;

// ticks are round numbers between two.
export function ticks(low, high, count) {
  const width = high - low;
  if (!(width > 0)) return [low];
  const raw = width / count, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= raw) || 10 * size;
  const list = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) list.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return list;
}

// lines draws curves {name, points: [[step, value]…]}. Arrow keys move a cursor through the values.
export function lines({ title, unit = "", curves, zero = false, note = "", format = short, logarithmic = false }) {
  curves = curves.filter((c) => c.points.length > 0).map((c) => ({ ...c, points: smoothed(c.points) }));
  if (curves.length === 0) return el("figure", {}, el("figcaption", {}, title), el("p", { class: "muted" }, note || "Nothing yet."));
  const all = curves.flatMap((c) => c.points);
  let [x0, x1] = range(all.map((p) => p[0])), [y0, y1] = range(all.map((p) => p[1]));
  if (zero) y0 = Math.min(0, y0);
  if (y1 === y0) { y1 += Math.abs(y1) * 0.1 || 1; if (!zero) y0 -= Math.abs(y0) * 0.1 || 1; }
  if (x1 === x0) x1 = x0 + 1;
  const px = (x) => LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT);
  const log = logarithmic && axes.log && y0 > 0, at = log ? Math.log : (y) => y;
  const py = (y) => H - BOTTOM - (at(y) - at(y0)) / (at(y1) - at(y0)) * (H - TOP - BOTTOM);
  const parts = [];
  for (const t of ticks(y0, y1, 4)) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: py(t), y2: py(t) }), svg("text", { x: LEFT - 6, y: py(t) + 4, "text-anchor": "end" }, format(t)));
  }
  for (const t of ticks(x0, x1, W < 400 ? 4 : 6).filter((t) => axes.x !== "steps" || Number.isInteger(t))) {
    parts.push(svg("text", { x: px(t), y: H - 8, "text-anchor": px(t) > W - RIGHT - 16 ? "end" : "middle" }, axis().format(t)));
  }
  curves.forEach((c, i) => {
    const shape = c.points.length === 1
      ? svg("circle", { class: "c" + (i + 1), cx: px(c.points[0][0]), cy: py(c.points[0][1]), r: 3 })
      : svg("path", { class: "c" + (i + 1), d: c.points.map((p, n) => (n ? "L" : "M") + px(p[0]).toFixed(1) + " " + py(p[1]).toFixed(1)).join("") });
    parts.push(shape);
  });
  const last = curves.map((c) => `${c.name} ${format(c.points.at(-1)[1])}${unit && " " + unit}`).join(", ");
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: 0, "aria-label": `${title}, over ${axes.x}, ${axis().format(x0)} to ${axis().format(x1)}. Newest: ${last}. Arrow keys read single values.` }, parts, cursor);
  const readout = el("p", { class: "readout", "aria-live": "polite" }, "Newest: " + last);
  read(title, chart, cursor, readout, curves, px, (v) => format(v) + (unit && " " + unit));
  return el("figure", { "data-chart": title }, el("figcaption", {}, title, unit ? el("span", { class: "muted" }, ` (${unit})`) : null), chart, readout,
    curves.length > 1 ? legend(curves) : null, note ? el("p", { class: "muted" }, note) : null);
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}

function legend(curves) {
  return el("ul", { class: "legend" }, curves.map((c, i) =>
    el("li", {}, svg("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("path", { class: "c" + (i + 1), d: "M0 4H28" })), c.name)));
}

// Where the reader's cursor is in a chart, by its title: charts are drawn anew while it is there.
const cursors = new Map();

// read lets a pointer or the arrow keys choose a point.
function read(title, chart, cursor, readout, curves, px, format) {
  const main = curves[0].points, newest = readout.textContent;
  let at = main.length - 1;
  const show = () => {
    const x = main[at][0];
    cursors.set(title, x);
    cursor.setAttribute("x1", px(x)); cursor.setAttribute("x2", px(x)); cursor.setAttribute("visibility", "visible");
    readout.textContent = `${axis().name} ${axis().format(x)}: ` + curves.map((c) => `${c.name} ${format(nearest(c.points, x)[1])}`).join(", ");
  };
  const hide = () => {
    cursors.delete(title);
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = newest;
  };
  if (cursors.has(title)) {
    at = main.indexOf(nearest(main, cursors.get(title)));
    show();
  }
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", (e) => { if (e.relatedTarget) hide(); }); // not when it is drawn anew
  chart.addEventListener("keydown", (e) => {
    if (e.key === "Escape") return hide();
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -main.length, End: main.length }[e.key];
    if (!move) return;
    e.preventDefault();
    at = Math.max(0, Math.min(main.length - 1, at + move));
    show();
  });
  chart.addEventListener("pointermove", (e) => {
    const box = chart.getBoundingClientRect(), x = (e.clientX - box.left) / box.width * W;
    at = main.reduce((best, p, i) => Math.abs(px(p[0]) - x) < Math.abs(px(main[best][0]) - x) ? i : best, 0);
    show();
  });
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) { const mid = (low + high) >> 1; if (points[mid][0] < x) low = mid + 1; else high = mid; }
  return low > 0 && Math.abs(points[low - 1][0] - x) < Math.abs(points[low][0] - x) ? points[low - 1] : points[low];
}

export const phases = [
  { name: "Uninitialized", class: "p-waits" },
  { name: "Waiting", class: "p-waits" },
  { name: "Warmup", class: "p-warmup" },
  { name: "Train", class: "p-trains" },
  { name: "Witness", class: "p-witnesses" },
  { name: "Cooldown", class: "p-cools" },
  { name: "Finished", class: "p-waits" },
  { name: "Paused", class: "p-paused" },
];

const lanes = [1, 2, 3, 4, 5, 7];

// timeline draws the newest phases, a lane for each kind.
export function timeline(list, now) {
  const shown = list.slice(-80);
  if (shown.length === 0) return el("p", { class: "muted" }, "Nothing yet.");
  const start = shown[0].t, open = shown.at(-1), over = open.p === 6;
  const end = Math.max(over ? open.t : now, start + 1), lane = 24, height = lanes.length * lane + 24, left = 72;
  const px = (t) => left + (t - start) / (end - start) * (W - left - RIGHT);
  const parts = lanes.flatMap((p, i) => [
    svg("text", { x: left - 8, y: i * lane + 16, "text-anchor": "end" }, phases[p].name),
    svg("line", { class: "grid", x1: left, x2: W - RIGHT, y1: (i + 1) * lane, y2: (i + 1) * lane }),
  ]);
  for (const s of shown) {
    const row = lanes.indexOf(s.p);
    if (row < 0) continue;
    const until = s.u || end;
    parts.push(svg("rect", { class: phases[s.p].class, x: px(s.t), y: row * lane + 4, width: Math.max(1.5, px(until) - px(s.t)), height: lane - 8 },
      svg("title", {}, `${phases[s.p].name}, epoch ${s.e}, step ${s.s}: ${span(until - s.t)}`)));
  }
  for (const share of [0, 0.5, 1]) {
    parts.push(svg("text", { x: left + share * (W - left - RIGHT), y: height - 4, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" },
      when(start + share * (end - start)).slice(11)));
  }
  return svg("svg", { class: "chart", viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": `The newest ${shown.length} phases, ${span(end - start)}; the table below has their sums.` }, parts);
}

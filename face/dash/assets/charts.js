// Charts as SVG: lines over steps, and the timeline of phases. Colours come from the style sheet.
import { el, svg, short, span, when } from "./parts.js";
import { axes, axis, smoothed } from "./axes.js";
import { savePicture } from "./picture.js";

// The width determines the size of text: on small screens a chart has fewer units.
const W = innerWidth < 700 ? 340 : 640, H = 220, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 26;

// ticks returns round numbers between low and high. A log may claim a range so small that a browser
// cannot represent numbers inside it.
export function ticks(low, high, count) {
  const width = high - low;
  if (!(width > 0)) return [low];
  const raw = width / count, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= raw) || 10 * size;
  const list = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6 && list.length <= 2 * count; t += step) list.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return list;
}

// tools draws the buttons of a chart: buttons, and a button that saves the chart as a picture.
export function tools(title, ...buttons) {
  return el("div", { class: "tools" }, buttons, el("button", { type: "button", id: "png-" + title, "aria-label": "Save as PNG: " + title, onclick: (e) => savePicture(e.currentTarget.closest("figure"), title) }, "Save as PNG"));
}

// lines draws curves {name, points: [[step, value]…], style}. Arrow keys move a cursor through the
// values. If the reader selects a range by dragging, keys or buttons, the chart shows only that
// range.
export function lines({ title, unit = "", curves, zero = false, note = "", format = short, logarithmic = false }) {
  curves = curves.filter((c) => c.points.length > 0).map((c, i) => ({ style: i + 1, ...c, points: smoothed(c.points) }));
  if (curves.length === 0) return el("figure", {}, el("figcaption", {}, title), el("p", { class: "muted" }, note || "Nothing yet."));
  const all = range(curves.flatMap((c) => c.points).map((p) => p[0])), part = zoomed(title, curves[0].points);
  if (part) curves = curves.map((c) => ({ ...c, points: c.points.filter((p) => p[0] >= part[0] && p[0] <= part[1]) })).filter((c) => c.points.length > 0);
  let [x0, x1] = part || all, [y0, y1] = range(curves.flatMap((c) => c.points).map((p) => p[1]));
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
  for (const c of curves) {
    parts.push(c.points.length === 1
      ? svg("circle", { class: "c" + c.style, cx: px(c.points[0][0]), cy: py(c.points[0][1]), r: 3 })
      : svg("path", { class: "c" + c.style, d: c.points.map((p, n) => (n ? "L" : "M") + px(p[0]).toFixed(1) + " " + py(p[1]).toFixed(1)).join("") }));
  }
  const last = curves.map((c) => `${c.name} ${format(c.points.at(-1)[1])}${unit && " " + unit}`).join(", ");
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  const chosen = svg("rect", { class: "chosen", y: TOP, height: H - BOTTOM - TOP, visibility: "hidden" });
  const span = `${axis().format(x0)} to ${axis().format(x1)}`;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: 0,
    "aria-label": `${title}, over ${axes.x}, ${span}. Newest: ${last}. Arrow keys read single values, plus and minus show less and more, 0 shows all.` }, parts, chosen, cursor);
  const readout = el("p", { class: "readout", "aria-live": "polite" }, (part ? `${axis().name} ${span}: ` : "Newest: ") + last);
  read(title, chart, cursor, readout, curves, px, (v) => format(v) + (unit && " " + unit));
  const zoom = zooming(title, chart, chosen, curves[0].points, all, [x0, x1], (x) => x0 + (Math.min(Math.max(x, LEFT), W - RIGHT) - LEFT) / (W - LEFT - RIGHT) * (x1 - x0));
  return el("figure", { "data-chart": title }, el("figcaption", {}, title, unit ? el("span", { class: "muted" }, ` (${unit})`) : null), chart, readout,
    curves.length > 1 ? legend(curves) : null, tools(title, zoom), note ? el("p", { class: "muted" }, note) : null);
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}

function legend(curves) {
  return el("ul", { class: "legend" }, curves.map((c) =>
    el("li", {}, svg("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, svg("path", { class: "c" + c.style, d: "M0 4H28" })), c.name)));
}

// cursors holds the position of the reader's cursor in each chart, by title, so that it survives a
// redraw of the chart.
const cursors = new Map();

// read adds selection of a point with a pointer or the arrow keys.
function read(title, chart, cursor, readout, curves, px, format) {
  const main = curves[0].points, newest = readout.textContent;
  let at = main.length - 1;
  const show = () => {
    const x = main[at][0];
    cursors.set(title, x);
    cursor.setAttribute("x1", px(x)); cursor.setAttribute("x2", px(x)); cursor.setAttribute("visibility", "visible");
    readout.textContent = `${axis().name} ${axis().format(x)}: ` + curves.map((c) => `${c.name} ${x < c.points[0][0] || x > c.points.at(-1)[0] ? "–" : format(nearest(c.points, x)[1])}`).join(", ");
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
  chart.addEventListener("blur", (e) => { if (e.relatedTarget) hide(); }); // not during a redraw
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

// zooms holds the range that the reader selected in each chart, by title, and the quantity of the
// axis: {x, from, to}.
const zooms = new Map();
let drag = null, again = () => {};

// whenZoomed sets the function that redraws the charts after a zoom.
export function whenZoomed(draw) { again = draw; }

// dragging reports whether the reader is selecting a range, which a redraw would undo.
export const dragging = () => drag !== null;

// zoomed returns the selected range of a chart; null means the whole chart.
function zoomed(title, points) {
  const z = zooms.get(title);
  if (z && z.x === axes.x && points.some((p) => p[0] >= z.from && p[0] <= z.to)) return [z.from, z.to];
  zooms.delete(title);
  return null;
}

// zooming lets the reader select a range of a chart, and returns the chart's buttons. The
// parameter all is the full range, and now is the shown range. value converts a position in the
// chart to a value on its axis.
function zooming(title, chart, chosen, points, all, now, value) {
  const set = (from, to) => {
    if (from <= all[0] && to >= all[1]) zooms.delete(title);
    else if (points.filter((p) => p[0] >= from && p[0] <= to).length < 2) return again("There is nothing more to see there.");
    else zooms.set(title, { x: axes.x, from, to });
    cursors.delete(title);
    again(zooms.has(title) ? `${title}: ${axis().name} ${axis().format(from)} to ${axis().format(to)}` : `${title}: whole range`);
  };
  const scale = (by) => {
    const half = Math.min((now[1] - now[0]) * by, all[1] - all[0]) / 2, middle = Math.min(Math.max(cursors.get(title) ?? now[1], all[0] + half), all[1] - half);
    set(middle - half, middle + half);
  };
  const whole = () => { chart.focus({ preventScroll: true }); set(...all); };
  chart.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const does = { "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), 0: whole }[e.key];
    if (does) { e.preventDefault(); does(); }
  });
  const place = (e) => { const box = chart.getBoundingClientRect(); return value((e.clientX - box.left) / box.width * W); };
  chart.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    drag = { from: place(e), x: e.clientX };
    chart.setPointerCapture(e.pointerId);
  });
  chart.addEventListener("pointermove", (e) => {
    if (!drag) return;
    const ends = [drag.from, place(e)].sort((a, b) => a - b).map((x) => LEFT + (x - now[0]) / (now[1] - now[0]) * (W - LEFT - RIGHT));
    chosen.setAttribute("x", ends[0]); chosen.setAttribute("width", ends[1] - ends[0]); chosen.setAttribute("visibility", "visible");
  });
  const end = (e) => {
    const from = drag;
    drag = null;
    chosen.setAttribute("visibility", "hidden");
    if (e.type === "pointerup" && from && Math.abs(e.clientX - from.x) > 8) set(...[from.from, place(e)].sort((a, b) => a - b));
  };
  chart.addEventListener("pointerup", end);
  chart.addEventListener("pointercancel", end);
  const button = (text, label, does) => el("button", { type: "button", id: `${text} ${title}`, "aria-label": `${label}: ${title}`, onclick: does }, text);
  return [points.length > 2 ? button("Zoom in", "Zoom in", () => scale(0.5)) : null, zooms.has(title) ? button("Whole range", "Whole range", whole) : null];
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

// timeline draws the newest phases, with one lane for each kind.
export function timeline(list, now) {
  const shown = list.slice(-80);
  if (shown.length === 0) return el("p", { class: "muted" }, "Nothing yet.");
  const start = shown.map((s) => s.t || s.u).find((t) => t > 0), open = shown.at(-1), over = open.p === 6;
  if (!start) return el("p", { class: "muted" }, "The log has no time yet: its first tick brings one.");
  const end = Math.max(over ? open.t : now, start + 1), lane = 24, height = lanes.length * lane + 24, left = 72;
  const px = (t) => left + (Math.max(t, start) - start) / (end - start) * (W - left - RIGHT);
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

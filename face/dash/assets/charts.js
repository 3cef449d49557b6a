// Charts as SVG: lines over steps, and the timeline of phases. Colours come from the style sheet.
import { el, svg, short, span, when } from "./parts.js";
import { axes, axis, smoothed } from "./axes.js";
import { savePicture } from "./picture.js";

const small = innerWidth < 700;

// Sizes of charts in units; on small screens a chart has fewer units, so that its text stays legible.
const usual = small ? [340, 220] : [640, 220];
export const large = small ? [340, 150] : [820, innerHeight < 850 ? 220 : 264];
const [W] = usual, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 26;

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

// lines draws curves {name, points: [[x, value]…], style}, a band {name, points: [[x, low, high]…]} behind them and marks
// {at, kind, text} above them. Arrow keys move a cursor through the values. If the reader selects a range by dragging, keys
// or buttons, the chart shows only that range.
export function lines({ title, unit = "", curves, band = null, marks = [], zero = false, note = "", format = short, logarithmic = false, size = usual, lead = null, options = null }) {
  curves = curves.filter((c) => c.points.length > 0).map((c, i) => ({ style: i + 1, ...c, points: smoothed(c.points) }));
  if (curves.length === 0) return el("figure", {}, el("figcaption", {}, title), el("p", { class: "muted" }, note || "Nothing yet."));
  const [width, height] = size, of = (at) => band.points.map((p) => [p[0], p[at]]);
  const edges = band ? [1, 2].map((at) => smoothed(of(at))) : [];
  const all = range([...curves.map((c) => c.points), ...edges].flat().map((p) => p[0])), part = zoomed(title, curves[0].points);
  const within = (points) => part ? points.filter((p) => p[0] >= part[0] && p[0] <= part[1]) : points;
  curves = curves.map((c) => ({ ...c, points: within(c.points) })).filter((c) => c.points.length > 0);
  const [low, high] = edges.map(within);
  let [x0, x1] = part || all, [y0, y1] = range([...curves.map((c) => c.points), low || [], high || []].flat().map((p) => p[1]));
  if (zero) y0 = Math.min(0, y0);
  if (y1 === y0) { y1 += Math.abs(y1) * 0.1 || 1; if (!zero) y0 -= Math.abs(y0) * 0.1 || 1; }
  if (x1 === x0) x1 = x0 + 1;
  const top = marks.length ? TOP + 14 : TOP;
  const px = (x) => LEFT + (x - x0) / (x1 - x0) * (width - LEFT - RIGHT);
  const log = logarithmic && axes.log && y0 > 0, at = log ? Math.log : (y) => y;
  const py = (y) => height - BOTTOM - (at(y) - at(y0)) / (at(y1) - at(y0)) * (height - top - BOTTOM);
  const place = (p) => px(p[0]).toFixed(1) + " " + py(p[1]).toFixed(1), path = (points) => points.map((p, n) => (n ? "L" : "M") + place(p)).join("");
  const parts = [];
  for (const t of ticks(y0, y1, 4)) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(t), y2: py(t) }), svg("text", { x: LEFT - 6, y: py(t) + 4, "text-anchor": "end" }, format(t)));
  }
  for (const t of ticks(x0, x1, width < 400 ? 4 : 6).filter((t) => axes.x !== "steps" || Number.isInteger(t))) {
    parts.push(svg("text", { x: px(t), y: height - 8, "text-anchor": px(t) > width - RIGHT - 16 ? "end" : "middle" }, axis().format(t)));
  }
  if (low && low.length > 1) parts.push(svg("path", { class: "band", d: path(low) + path(high.toReversed()).replace("M", "L") + "Z" }));
  for (const c of curves) {
    parts.push(c.points.length === 1
      ? svg("circle", { class: "c" + c.style, cx: px(c.points[0][0]), cy: py(c.points[0][1]), r: 3 })
      : svg("path", { class: "c" + c.style, d: path(c.points) }));
  }
  const shown = marks.filter((m) => m.at >= x0 && m.at <= x1);
  parts.push(marked(shown, px, top, height - BOTTOM));
  const value = (v) => format(v) + (unit && " " + unit);
  const last = curves.map((c) => `${c.name} ${value(c.points.at(-1)[1])}`).join(", ");
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - BOTTOM, visibility: "hidden" });
  const chosen = svg("rect", { class: "chosen", y: top, height: height - BOTTOM - top, visibility: "hidden" });
  const span = `${axis().format(x0)} to ${axis().format(x1)}`;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-label": `${title}, over ${axes.x}, ${span}. Newest: ${last}. Arrow keys read single values, plus and minus show less and more, 0 shows all.` }, parts, chosen, cursor);
  const readout = el("p", { class: "readout" }, (part ? `${axis().name} ${span}: ` : "Newest: ") + last), tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  read({ title, chart, cursor, readout, tip, px, value, width, curves, edges: low ? [low, high] : null, marks: shown });
  const zoom = zooming({ title, chart, chosen, points: curves[0].points, all, now: [x0, x1], width, value: (x) => x0 + (Math.min(Math.max(x, LEFT), width - RIGHT) - LEFT) / (width - LEFT - RIGHT) * (x1 - x0) });
  return el("figure", { "data-chart": title }, el("figcaption", { class: lead ? "hidden" : null }, title, unit ? el("span", { class: "muted" }, ` (${unit})`) : null), lead, el("div", { class: "plot" }, chart, tip), readout,
    curves.length + edges.length + shown.length > 1 ? legend(curves, low && band, shown) : null, note ? el("p", { class: "muted note" }, note) : null, tools(title, zoom, options));
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}

// Shapes of the marks around a point, and their names.
const shapes = {
  ejected: [(x, y) => `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x + 4} ${y - 4}L${x - 4} ${y + 4}`, "ejection"],
  dropped: [(x, y) => `M${x - 4} ${y - 3}H${x + 4}L${x} ${y + 4}Z`, "drop"],
  paused: [(x, y) => `M${x - 3} ${y - 4}V${y + 4}M${x + 3} ${y - 4}V${y + 4}`, "pause"],
};

// marked draws marks above a chart. Marks of one kind that are close together share one drawing.
function marked(marks, px, top, bottom) {
  const drawn = [];
  for (const m of [...marks].sort((a, b) => a.at - b.at)) {
    const near = drawn.findLast((d) => d.kind === m.kind), x = Math.round(px(m.at));
    if (near && x - near.x < 9) near.texts.push(m.text);
    else drawn.push({ kind: m.kind, x, texts: [m.text] });
  }
  return drawn.map(({ kind, x, texts }) => [svg("line", { class: "mark m-" + kind, x1: x, x2: x, y1: top, y2: bottom }),
    svg("path", { class: "m-" + kind, d: shapes[kind][0](x, top - 8) }, svg("title", {}, texts.join("\n")))]);
}

function legend(curves, band, marks) {
  const item = (shape, text, box = "0 0 28 8") => el("li", {}, svg("svg", { viewBox: box, "aria-hidden": "true" }, svg("path", shape)), text);
  return el("ul", { class: "legend" }, curves.map((c) => item({ class: "c" + c.style, d: "M0 4H28" }, c.name)), band ? item({ class: "band", d: "M0 0H28V8H0Z" }, band.name) : null,
    Object.keys(shapes).filter((kind) => marks.some((m) => m.kind === kind)).map((kind) => item({ class: "m-" + kind, d: shapes[kind][0](14, 4) }, shapes[kind][1])));
}

// cursor is the position of the reader's cursor, which all charts share, so that it survives a redraw: {x, over, title},
// with the quantity of the axis and the chart under the pointer. It is null without a cursor.
let cursor = null;
const followers = new WeakMap(); // functions that draw the cursor, by chart

function point(to) {
  cursor = to;
  for (const chart of document.querySelectorAll("svg.chart")) followers.get(chart)?.();
}

// read lets the reader select a point with a pointer or the arrow keys.
function read(c) {
  const { title, chart, readout, tip, px, width } = c, main = c.curves[0].points, newest = readout.textContent;
  const at = () => cursor && cursor.over === axes.x ? main.indexOf(nearest(main, cursor.x)) : -1;
  const texts = (x) => [
    ...c.curves.map((k) => `${k.name} ${x < k.points[0][0] || x > k.points.at(-1)[0] ? "–" : c.value(nearest(k.points, x)[1])}`),
    ...(c.edges ? [`spread ${c.edges.map((e) => c.value(nearest(e, x)[1])).join(" to ")}`] : []),
    ...c.marks.filter((m) => nearest(main, m.at)[0] === x).map((m) => m.text),
  ];
  const follow = () => {
    const i = at(), mine = cursor && cursor.title === title, inside = i >= 0 && (mine || cursor.x >= main[0][0] && cursor.x <= main.at(-1)[0]);
    c.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    tip.hidden = !inside || !mine;
    if (!inside) { readout.textContent = newest; return; }
    const x = main[i][0], said = texts(x), head = `${axis().name} ${axis().format(x)}`;
    c.cursor.setAttribute("x1", px(x)); c.cursor.setAttribute("x2", px(x));
    readout.textContent = `${head}: ${said.join(", ")}`;
    tip.replaceChildren(el("strong", {}, head), ...said.map((text) => el("span", {}, text)));
    tip.style.left = 100 * px(x) / width + "%";
    tip.classList.toggle("flip", px(x) > width / 2);
  };
  followers.set(chart, follow);
  follow();
  const hide = () => { readout.removeAttribute("aria-live"); point(null); };
  const select = (i) => point({ x: main[i][0], over: axes.x, title });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", (e) => { if (e.relatedTarget) hide(); }); // not during a redraw
  chart.addEventListener("keydown", (e) => {
    if (e.key === "Escape") return hide();
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -main.length, End: main.length }[e.key];
    if (!move) return;
    e.preventDefault();
    readout.setAttribute("aria-live", "polite"); // only the chart that the reader uses speaks
    select(Math.max(0, Math.min(main.length - 1, (at() < 0 ? main.length - 1 : at()) + move)));
  });
  chart.addEventListener("pointermove", (e) => {
    const box = chart.getBoundingClientRect(), x = (e.clientX - box.left) / box.width * width;
    select(main.reduce((best, p, i) => Math.abs(px(p[0]) - x) < Math.abs(px(main[best][0]) - x) ? i : best, 0));
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
// field all is the full range, and now is the shown range. value converts a position in the
// chart to a value on its axis.
function zooming({ title, chart, chosen, points, all, now, width, value }) {
  const set = (from, to) => {
    if (from <= all[0] && to >= all[1]) zooms.delete(title);
    else if (points.filter((p) => p[0] >= from && p[0] <= to).length < 2) return again("There is nothing more to see there.");
    else zooms.set(title, { x: axes.x, from, to });
    cursor = null;
    again(zooms.has(title) ? `${title}: ${axis().name} ${axis().format(from)} to ${axis().format(to)}` : `${title}: whole range`);
  };
  const scale = (by) => {
    const half = Math.min((now[1] - now[0]) * by, all[1] - all[0]) / 2, middle = Math.min(Math.max(cursor && cursor.over === axes.x ? cursor.x : now[1], all[0] + half), all[1] - half);
    set(middle - half, middle + half);
  };
  const whole = () => { chart.focus({ preventScroll: true }); set(...all); };
  chart.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const does = { "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), 0: whole }[e.key];
    if (does) { e.preventDefault(); does(); }
  });
  const place = (e) => { const box = chart.getBoundingClientRect(); return value((e.clientX - box.left) / box.width * width); };
  chart.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    drag = { from: place(e), x: e.clientX };
    chart.setPointerCapture(e.pointerId);
  });
  chart.addEventListener("pointermove", (e) => {
    if (!drag) return;
    const ends = [drag.from, place(e)].sort((a, b) => a - b).map((x) => LEFT + (x - now[0]) / (now[1] - now[0]) * (width - LEFT - RIGHT));
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

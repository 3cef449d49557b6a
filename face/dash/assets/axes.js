// The axes of the curves over rounds: the reader's choice, kept while the page is open.
import { download, el, short, sum } from "./parts.js";

export const axes = { x: "steps", smooth: false, log: false };

const kinds = {
  steps: { name: "Step", format: (v) => short(v, 4) },
  hours: { name: "Hour", format: (v) => short(v, 3) },
  tokens: { name: "Tokens", format: (v) => short(v, 3) },
};

// axis returns the quantity on the horizontal axis.
export const axis = () => kinds[axes.x];

// places returns the position of each round on the horizontal axis.
export function places(history) {
  let tokens = history.tokens - sum(history.rounds, (r) => r.k); // tokens before the first shown round
  return history.rounds.map((r) => {
    tokens += r.k;
    return { steps: r.s, hours: (r.t - history.began) / 3600000, tokens }[axes.x];
  });
}

// smoothed returns the exponential moving average of the points' values, over a fiftieth of the
// points.
export function smoothed(points) {
  if (!axes.smooth || points.length < 3) return points;
  const share = 2 / (Math.max(5, points.length / 50) + 1);
  let mean = points[0][1];
  return points.map(([x, y]) => [x, mean += share * (y - mean)]);
}

// controls draws the controls of the curves.
export function controls(changed) {
  const box = (name, text) => el("label", { for: "axes-" + name }, el("input", { id: "axes-" + name, type: "checkbox", checked: axes[name], onchange: (e) => { axes[name] = e.target.checked; changed(); } }), text);
  return [
    el("label", { for: "axes-x" }, "Over", el("select", { id: "axes-x", onchange: (e) => { axes.x = e.target.value; changed(); } },
      Object.keys(kinds).map((k) => el("option", { value: k, selected: axes.x === k }, k)))),
    box("smooth", "Smooth"), box("log", "Logarithmic loss"),
  ];
}

// save downloads the shown rounds as a file.
export function save(history, name) {
  const columns = ["step", "rounds", "ended_unix_ms", "tokens", "batches", "counted", "members", "witnesses", "elected", "claimed_loss", "claimed_tokens_per_second", ...["uninitialized", "waiting", "warmup", "train", "witness", "cooldown", "finished", "paused"].map((p) => p + "_ms")];
  const rows = history.rounds.map((r) => [r.s, r.n, r.t, r.k, r.b, r.c, r.m / r.n, r.v, r.q, r.a ? (r.x || 0) / r.a / 1000 : "", r.a ? (r.z || 0) / r.a : "", ...r.w]);
  download(new Blob([[columns, ...rows].map((row) => row.join(",")).join("\n") + "\n"], { type: "text/csv" }), name + ".csv");
}

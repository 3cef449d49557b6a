// Draws the claims about loss and speed that witnesses sign with their proofs.
import { el, key, nameOf, section, short, whole } from "./parts.js";
import { axes, places } from "./axes.js";
import { large, lines } from "./charts.js";
import { overlay } from "./other.js";

const unit = 1000; // units of a claimed loss in the log

// The history omits these values if they are 0.
const nothing = { x: 0, y: 0, z: 0 };

function claimedRounds(data) {
  const at = data.history ? places(data.history) : [];
  return data.history ? data.history.rounds.map((r, i) => ({ ...nothing, ...r, at: at[i] })).filter((r) => r.a) : [];
}

// measured returns the recorded checkpoints with claimed losses on held-out data, newest first.
const measured = (data) => (data.history && data.history.checkpoints || []).filter((c) => c.held_out);

// heldOut returns these losses at their places on the axis, oldest first. It omits checkpoints before the first shown round.
function heldOut(data) {
  const h = data.history, at = h ? places(h) : [];
  return measured(data).filter((c) => at.length && c.step >= h.rounds[0].s).map((c) => [at[h.rounds.findIndex((r) => r.s + r.n > c.step)], c.held_out / unit]).filter(([x]) => x !== undefined).reverse();
}

// newest draws the newest loss as the heading of the chart: the claims of the newest finished round, or else the mean of
// the members' event logs.
function newest(data, over) {
  const c = data.status && data.status.claimed, points = data.reported ? data.reported.points : [], claimed = c && c.loss.claims;
  const value = claimed ? short(c.loss.median, 4) : points.length ? short(points.at(-1).l, 4) : "–";
  return el("div", { class: "lead" }, el("h2", { id: "h-loss" }, over ? "Final loss" : "Loss"),
    el("p", { id: "loss" }, el("strong", {}, value), claimed ? el("span", {}, ` ± ${short(c.loss.spread, 2)}`) : null, el("small", {}, " nats per token")), held(data));
}

// held draws the newest claimed loss on held-out data.
function held(data) {
  const c = measured(data)[0], s = data.status && data.status.held_out;
  const [value, spread, step, claims] = c ? [c.held_out / unit, (c.held_out_spread || 0) / unit, c.step, c.held_out_claims] : s ? [s.loss.median, s.loss.spread, s.step, s.loss.claims] : [];
  if (!claims) return null;
  return el("p", { id: "held-out", class: "muted", title: "median of the unverified claims of members that measured the checkpoint" }, "Held-out ", el("strong", {}, short(value, 4)),
    claims > 1 ? ` ± ${short(spread, 2)}` : null, ` at step ${whole(step)}, claimed by ${whole(claims)} ${claims === 1 ? "member" : "members"}`);
}

// lossChart draws the loss of all rounds: its median, and the spread of the members as a band. It returns null if neither
// witnesses nor event logs report a loss.
export function lossChart(data, over, options) {
  const rounds = claimedRounds(data), points = data.reported ? data.reported.points : [], c = data.status && data.status.claimed;
  if (!rounds.length && !points.length && !(c && c.loss.claims)) return null;
  const each = (value) => rounds.map((r) => [r.at, value(r) / r.a / unit]);
  const from = data.history && data.history.rounds.length ? data.history.rounds[0].s : 0;
  const curve = rounds.length ? { name: "median claim", points: each((r) => r.x) } : { name: "mean of members", points: points.filter((p) => p.s >= from).map((p) => [p.s, p.l]) };
  const note = rounds.length ? null : "From the members' event logs, as the host reports them; unsigned.";
  return el("div", { class: rounds.length ? null : "host", "data-said": rounds.length ? null : true },
    lines({ title: "Loss", unit: "nats per token", logarithmic: true, size: large, lead: newest(data, over), options, note, format: (v) => short(v, 4), marks: marks(data),
      curves: [curve, ...(rounds.length ? [{ name: "median held-out claim", points: heldOut(data) }] : []), ...overlay((r) => (r.x || 0) / r.a / unit, (r) => r.a > 0)],
      band: rounds.length ? { name: "spread", points: rounds.map((r) => [r.at, (r.x - r.y) / r.a / unit, (r.x + r.y) / r.a / unit]) } : null }));
}

// marks returns the ejections, drops and pauses of a run at their places on the axis.
function marks(data) {
  const h = data.history;
  if (!h || !h.rounds.length) return [];
  const at = places(h), who = (e) => String(e.subject).slice(0, 8) + "… " + nameOf(e.subject);
  const text = { ejected: (e) => `ejection of ${who(e)}`, dropped: (e) => `drop of ${who(e)}`, paused: () => "the run was paused" };
  return h.marks.filter((e) => Object.hasOwn(text, e.kind)).map((e) => {
    const i = h.rounds.findIndex((r) => r.s + r.n > e.step), last = i < 0 ? at.length - 1 : i;
    return { kind: e.kind, at: axes.x === "steps" ? Math.min(e.step, h.rounds[last].s) : at[last], text: text[e.kind](e) };
  });
}

// learning draws the claimed speed of one member, and lists members whose claims are far from the median.
export function learning(data) {
  const rounds = claimedRounds(data), c = data.status && data.status.claimed;
  if (!rounds.length && !c) return null;
  return section("Claims",
    rounds.length ? lines({ title: "Tokens per second of one member", zero: true, curves: [{ name: "median claim", points: rounds.map((r) => [r.at, r.z / r.a]) }, ...overlay((r) => (r.z || 0) / r.a, (r) => r.a > 0)], note: "During computation, as claimed by witnesses." }) : null,
    c ? far(c) : null);
}

// far lists the members whose claims are far from the median.
function far(c) {
  if (!c.loss.claims) return null;
  const who = c.loss.far || [];
  return el("p", { class: "muted" }, `Step ${whole(c.step)}: ${c.loss.claims} of ${c.witnesses} witnesses claim a loss. `,
    who.length ? ["Far from the median: ", who.map((id, i) => [i ? ", " : "", key(id)]), ". This proves nothing about them."] : "No claim is far from the median.");
}

// claimColumns are the table columns for the claims that members make as witnesses.
export function claimColumns(data) {
  if (!data.history || !data.history.members.some((m) => m.claims)) return [];
  return [
    { name: "Loss†", help: "of the newest round that it witnessed and trained in", value: (m) => m.claimed_loss || 0, show: (m) => m.claims ? el("span", { title: `step ${whole(m.claimed_step)}` }, short(m.claimed_loss / unit, 4)) : "–" },
    { name: "Tokens/s†", help: "of that round, while it computed", value: (m) => m.claimed_speed || 0, show: (m) => m.claimed_speed ? short(m.claimed_speed) : "–" },
    { name: "Far†", help: "rounds in which its claim of the loss was far from the median", value: (m) => m.far || 0, show: (m) => m.claims ? el("span", { title: `of ${whole(m.claims)}` }, whole(m.far || 0)) : "–" },
  ];
}

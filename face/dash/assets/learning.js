// Draws the claims about loss and speed that witnesses sign with their proofs.
import { el, key, section, short, tile, whole } from "./parts.js";
import { places } from "./axes.js";
import { lines } from "./charts.js";
import { overlay } from "./other.js";

const unit = 1000; // units of a claimed loss in the log

// The history omits these values if they are 0.
const nothing = { x: 0, y: 0, z: 0 };

// lossTile shows the claimed loss of the newest finished round.
export function lossTile(status) {
  const c = status.claimed;
  if (!c || !c.loss.claims) return null;
  return tile("Loss, claimed", short(c.loss.median, 4),
    `nats per token: median of the claims of ${c.loss.claims} of ${c.witnesses} witnesses about step ${c.step}, and the median distance from it`, `± ${short(c.loss.spread, 2)}`);
}

// learning draws the curves of the claims, and lists members whose claims are far from the median.
export function learning(data) {
  const at = data.history ? places(data.history) : [];
  const rounds = data.history ? data.history.rounds.map((r, i) => ({ ...nothing, ...r, at: at[i] })).filter((r) => r.a) : [], c = data.status && data.status.claimed;
  const points = data.reported ? data.reported.points : [];
  if (!rounds.length && !c && !points.length) return null;
  const first = data.history && data.history.rounds.length ? data.history.rounds[0].s : 0;
  const each = (of) => rounds.map((r) => [r.at, of(r) / r.a]);
  const claimed = rounds.length ? [
    { name: "median claim", points: each((r) => r.x / unit) },
    { name: "median + spread", points: each((r) => (r.x + r.y) / unit) }, { name: "median − spread", points: each((r) => (r.x - r.y) / unit) }]
    : [{ name: "mean of members", points: points.filter((p) => p.s >= first).map((p) => [p.s, p.l]) }];
  const claims = (r) => r.a > 0;
  const note = rounds.length ? "Witnesses sign these claims with their proofs; they are not checked. The chart shows the median of a quorum, and the median distance from it."
    : "No witness claims a loss. The chart shows the members' event logs, as the host reports them; unsigned.";
  return section("Learning", el("div", { class: rounds.length ? "pair" : "pair host", "data-said": rounds.length ? null : true },
    lines({ title: "Loss", unit: "nats per token", logarithmic: true, curves: [...claimed, ...overlay((r) => (r.x || 0) / r.a / unit, claims)], format: (v) => short(v, 4), note }),
    rounds.length ? lines({ title: "Tokens per second of one member", zero: true, curves: [{ name: "median claim", points: each((r) => r.z) }, ...overlay((r) => (r.z || 0) / r.a, claims)], note: "During computation, as claimed by witnesses." }) : null),
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

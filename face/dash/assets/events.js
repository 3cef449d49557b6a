// Draws the list of events.
import { el, key, section, when, whole } from "./parts.js";

const words = {
  began: () => "The run began.", joined: (e) => [key(e.subject), " asked to join."], left: (e) => [key(e.subject), " left."],
  withdrawn: (e) => [key(e.subject), " was withdrawn by the host: its connection was lost."],
  accused: (e) => [key(e.actor), " reported ", key(e.subject), ` as late in step ${e.step}; its status did not change.`],
  returned: (e) => [key(e.subject), " took its seat in the running epoch back."],
  trial: (e) => [key(e.actor), " accused ", key(e.subject), ` of its result of step ${e.step}: ${e.detail}. A jury votes.`],
  "trial-over": (e) => ["The trial of ", key(e.subject), ` is over: ${e.detail}, ${e.count || 0} of ${e.of || 0} jurors voted guilty.`],
  late: (e) => [key(e.subject), ` was found late: witnesses did not have its result of step ${e.step}; reported by `, key(e.actor), "."],
  slow: (e) => [key(e.subject), ` was found slow about step ${e.step}: rounds of this epoch do not wait for it; reported by `, key(e.actor), "."],
  dropped: (e) => [key(e.subject), " was dropped: ", e.detail, e.actor ? [", about step " + e.step + "; reported by ", key(e.actor)] : "", "."],
  ejected: (e) => [key(e.subject), ` was ejected until epoch ${e.until || 0}: ${e.detail}. The action that caused this was signed by `, key(e.actor), "."],
  disagreed: (e) => [key(e.subject), " reported another model: ", el("code", {}, e.detail.slice(0, 16)), "…"],
  "no-quorum": (e) => `Step ${e.step} had no quorum: ${e.count || 0} proofs, ${e.of} needed. Its results are lost.`,
  "no-checkpoint": (e) => `The epoch ended without a checkpoint: ${e.count || 0} reports, not enough of one model.`,
  "too-few": () => "Too few members remained in Warmup: the run waits for more members.",
  checkpoint: (e) => [`Checkpoint of step ${e.step}: `, el("code", {}, e.detail.slice(0, 16)), "…"],
  uploaded: (e) => [key(e.actor), ` reported the location of the checkpoint of step ${e.step}: `, el("code", {}, e.detail), "."],
  paused: () => "The run is paused.", finished: () => "The run is finished.",
  lapse: (e) => `The model has lost steps: ${e.detail}.`,
  authority: (e) => [key(e.actor), " decided: ", e.detail, e.subject ? [" ", key(e.subject)] : "", "."],
  other: (e) => [key(e.actor), " did: ", e.detail, "."],
};

const groups = {
  all: () => true,
  trust: (e) => ["accused", "trial", "trial-over", "late", "slow", "dropped", "ejected", "disagreed", "no-quorum", "no-checkpoint", "other"].includes(e.kind),
  members: (e) => ["joined", "left", "withdrawn", "returned"].includes(e.kind),
  decisions: (e) => ["authority", "ejected", "paused"].includes(e.kind),
};

// log draws the list of events. view is the reader's choice; changed redraws the page, and more fetches older events.
export function log(data, view, changed, more) {
  const h = data.history;
  if (!h) return null;
  const newestEntry = h.events.length ? h.events.at(-1).n : 0;
  const older = view.older.filter((e) => e.n < newestEntry);
  const list = [...h.events, ...older].filter(groups[view.kind]);
  const left = view.olderLeft === null ? h.more : view.olderLeft;
  return section("Events",
    el("div", { class: "controls" }, el("label", { for: "kind" }, "Show", el("select", { id: "kind", onchange: (e) => { view.kind = e.target.value; changed(); } },
      Object.keys(groups).map((k) => el("option", { value: k, selected: k === view.kind }, k))))),
    el("div", { class: "scroll", id: "s-log", tabindex: 0, role: "region", "aria-label": "Events, list" },
      el("ol", { class: "events" }, list.map((e) => el("li", {}, el("span", { class: "muted" }, `${when(e.t)} · entry ${e.n} · `), (words[e.kind] || words.other)(e)))),
      list.length ? null : el("p", { class: "muted" }, "Nothing of this kind.")),
    left > 0 ? el("p", {}, el("button", { type: "button", id: "older", onclick: () => more(left) }, "Show older")) : null,
    el("p", { class: "muted" }, "The number of an entry is its position in the run's log: psyche run replay --states shows the same entry. The time of an action is the time of the tick before it."
      + (h.forgotten ? ` ${whole(h.forgotten)} older events are only in the log.` : "")));
}

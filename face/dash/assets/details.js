// Draws the parts of the page below the first screen: checkpoints, reports of members, costs, and the fold with technical
// details.
import { el, key, percent, section, short, sol, span, sum, table, tile, when, whole } from "./parts.js";
import { places } from "./axes.js";
import { lines, phases, timeline, tools } from "./charts.js";
import { idle } from "./hero.js";
import { learning } from "./learning.js";
import { overlay } from "./other.js";
import { trials } from "./trust.js";

// details draws the fold with technical details, which is empty while it is closed: most readers do not open it, and its
// charts take half of the time of a drawing. options are the controls of the charts, unless they are with the loss.
export function details(data, now, open, options, changed) {
  if (!data.status) return null;
  const opened = (e) => { if (e.target.id === "details" && e.target.open && !open) changed(); };
  return el("details", { id: "details", ontoggle: opened }, el("summary", {}, el("h2", { id: "h-technical-details" }, "Technical details"), el("span", { class: "muted" }, "time, curves, trials, configuration")),
    open ? [time(data, now), curves(data, options), learning(data), trials(data), configuration(data)] : null);
}

function time(data, now) {
  const h = data.history;
  if (!h) return section("Time", el("p", { class: "muted" }, "The server keeps no journal (--save-state-dir), so there is no history."));
  const at = places(h), total = sum(h.spent), rows = [1, 2, 3, 4, 5, 7].map((p) => ({ name: phases[p].name, ms: h.spent[p] }));
  return section("Time", el("div", { class: "pair" },
    el("figure", {}, el("figcaption", {}, "Newest phases"), timeline(h.phases, now), h.phases.some((p) => p.t || p.u) ? tools("Newest phases") : null),
    lines({ title: "Idle share of a round", unit: "%", zero: true, curves: [{ name: "not training", points: h.rounds.map((r, i) => [at[i], 100 * idle(r.w)]) }], note: "Time in waiting, warmup, witnessing and cooldown, as a share of the time since the previous round." })),
  el("div", { class: "scroll", id: "s-phases", tabindex: 0, role: "region", "aria-label": "Time in phases" }, table("Time in phases", [
    { name: "Phase", value: (r) => r.name, left: true },
    { name: "Time", value: (r) => r.ms, show: (r) => span(r.ms) },
    { name: "Share", value: (r) => r.ms, show: (r) => percent(r.ms / total) },
  ], rows)));
}

function curves(data, options) {
  const h = data.history;
  if (!h) return null;
  const at = places(h), rounds = h.rounds.map((r, i) => ({ ...r, at: at[i] })), speed = (r) => r.k / Math.max(1, sum(r.w)) * 1000;
  return section("Curves", options, el("div", { class: "pair" },
    lines({ title: "Tokens per second", zero: true, curves: [{ name: "counted", points: rounds.map((r) => [r.at, speed(r)]) }, ...overlay(speed)], note: "Of results that counted, by the clock of the run's log." }),
    lines({ title: "Members of a round", zero: true, curves: [
      { name: "members", points: rounds.map((r) => [r.at, r.m / r.n]) }, { name: "elected witnesses", points: rounds.map((r) => [r.at, r.q / r.n]) },
      { name: "witness proofs", points: rounds.map((r) => [r.at, r.v / r.n]) }] }),
    lines({ title: "Results that counted", unit: "%", zero: true, curves: [{ name: "of all batches", points: rounds.filter((r) => r.b).map((r) => [r.at, 100 * r.c / r.b]) }] })));
}

// checkpoints draws the recorded checkpoints and their locations.
export function checkpoints(data) {
  const h = data.history, rows = h ? h.checkpoints : [];
  const places = data.locations;
  if (!rows.length && !places.length) return null;
  return section("Checkpoints", el("div", { class: "pair" },
    el("div", {}, el("h3", {}, "Recorded by a quorum"), el("div", { class: "scroll", id: "s-check", tabindex: 0, role: "region", "aria-label": "Recorded checkpoints" },
      rows.length ? table("Recorded checkpoints", [
        { name: "Step", value: (c) => c.step, show: (c) => whole(c.step) }, { name: "Epoch", value: (c) => c.epoch },
        { name: "Digest", left: true, value: (c) => c.digest, show: (c) => el("code", { title: c.digest }, c.digest.slice(0, 16) + "…") },
        ...(rows.some((c) => c.held_out) ? [{ name: "Held-out†", help: "median of the losses on held-out data that members claim", value: (c) => c.held_out || 0, show: (c) => c.held_out ? el("span", { title: `of ${whole(c.held_out_claims)} claims` }, short(c.held_out / 1000, 4)) : "–" }] : []),
        { name: "Entry", value: (c) => c.entry }, { name: "Time", value: (c) => c.time, show: (c) => when(c.time) }], rows) : el("p", { class: "muted" }, "None yet."))),
    el("div", {}, el("h3", {}, "Locations"), el("ul", {}, places.map((p) => el("li", {}, p.reporter ? `step ${whole(p.step)}: ` : "the run began with ", `${p.kind} `,
      p.link ? el("a", { href: p.link, rel: "noreferrer noopener" }, p.place) : el("code", {}, p.place), p.reporter ? [", reported by ", key(p.reporter), ` (entry ${p.entry})`] : null))))));
}

// evaluations draws the evaluations and notices in the event logs of members.
export function evaluations(data) {
  const tasks = data.reported ? Object.entries(data.reported.tasks).filter(([, scores]) => scores && scores.length) : [];
  const notices = data.reported && data.reported.notices ? [...data.reported.notices].reverse() : [];
  if (!tasks.length && !notices.length) return null;
  return hosts(section("As reported by members",
    tasks.length ? el("div", { class: "pair" }, tasks.map(([name, scores]) => lines({ title: "Evaluation " + name, curves: [{ name: "score", points: scores.map((p) => [p.s, p.v]) }], format: (v) => short(v, 4) }))) : null,
    notices.length ? el("details", { id: "notices" }, el("summary", {}, `${notices.length} notices`), el("ol", { class: "events" },
      notices.map((n) => el("li", {}, el("span", { class: "muted" }, `${when(n.t)} · `), key(n.member), ` ${n.kind}, step ${n.step} `, n.subject ? key(n.subject) : "", " ", n.text)))) : null));
}

// hosts marks a section whose whole content is reported by the host.
function hosts(made) {
  made.classList.add("host");
  return made;
}

// costs draws the fees that a run on a chain has paid.
export function costs(data) {
  const c = data.costs;
  if (!c) return null;
  const payers = Object.entries(c.payers || {}).map(([id, lamports]) => ({ id, lamports }));
  return section("Costs on the chain", el("dl", { class: "tiles" }, tile("Transactions", whole(c.transactions)), tile("Fees, at least", sol(c.lamports), "signatures of the transactions that changed the run; priority fees are not included")),
    el("p", { class: "muted" }, "Account ", el("code", {}, c.account), ", program ", el("code", {}, c.program), ", head of the log ", el("code", { title: c.head }, c.head.slice(0, 16) + "…")),
    el("div", { class: "scroll", id: "s-costs", tabindex: 0, role: "region", "aria-label": "Payments" }, table("Payments", [{ name: "Key", left: true, value: (p) => p.id, show: (p) => key(p.id) }, { name: "Paid", value: (p) => p.lamports, show: (p) => sol(p.lamports) }], payers, { name: "Paid", down: true })));
}

function configuration(data) {
  const s = data.status;
  const rows = Object.entries(s.config).map(([name, value]) => ({ name, value }));
  const keys = [["host", s.host], ["main authority", s.authority.main], ["join authority", s.authority.permissioned ? s.authority.join : "every key may join"], ["state hash", s.state_hash],
    ["phase", s.run_state + (s.closed ? ", closed" : "")], ["epoch", whole(s.epoch)], ["witnesses of the round", s.round ? `${s.round.witnesses} of ${s.round.witnesses_elected}, quorum ${s.round.witness_quorum}` : "none"]];
  return section("Configuration",
    el("dl", { class: "facts" }, keys.map(([name, value]) => [el("dt", { class: "muted" }, name), el("dd", { class: "key" }, value)])),
    el("p", { class: "muted host" }, "Source of this page's data, as the host reports it: ", data.source),
    el("details", { id: "rules" }, el("summary", {}, "Rules"), el("div", { class: "scroll", id: "s-rules", tabindex: 0, role: "region", "aria-label": "Rules, table" }, table("Rules", [{ name: "Key", left: true, value: (r) => r.name, show: (r) => el("code", {}, r.name) }, { name: "Value", value: (r) => r.value }], rows))),
    data.model ? el("details", { id: "model" }, el("summary", {}, "Model, data and optimizer"), el("pre", { tabindex: 0, role: "region", "aria-label": "Model" }, JSON.stringify(data.model, null, 2))) : null);
}


// The page: a list of runs, and all data about one of them, refreshed every two seconds.
import { bad, bytes, call, el, key, moving, nameOf, part, percent, section, short, sol, span, table, tile, when, whole } from "./parts.js";
import { controls, places, save } from "./axes.js";
import { dragging, lines, phases, timeline, tools, whenZoomed } from "./charts.js";
import { chooser, overlay } from "./other.js";
import { claimColumns, learning, lossTile } from "./learning.js";
import { alive, leftTile, silent, waits } from "./progress.js";
import { auditColumns, claimedColumns, standing, trials } from "./trust.js";
import { checkSaved, drawn, events, follow, isVerified, saved, span as showSpan } from "./check.js";
import { linked, markSources, progressed, verification } from "./verify.js";

const every = 2000;
const view = { run: null, last: 0, sort: { name: "Counted", down: true }, find: "", all: false, kind: "all", older: [], olderLeft: null };
let etag = "", serverAhead = 0, freshAt = 0, verifierBytes = 0;
let host = null; // newest answer about the run; in a saved page, the facts outside the log
let data = null; // the part of host that the page draws, see drawn
let stale = false; // true if the drawing is older than host or check
let drawnAt = 0;

const $ = (id) => document.getElementById(id);
const say = (text) => { $("says").textContent = text; };

// Themes.
const themes = ["system", "light", "dark"];
function setTheme(name) {
  if (name === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
  $("theme").textContent = "Theme: " + name;
  try { localStorage.setItem("theme", name); } catch { /* it is not kept then */ }
}
let theme = "system";
try { theme = themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system"; } catch { /* none was kept */ }
setTheme(theme);
$("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme(theme);
  say("Theme: " + theme);
});

async function ask(path, known) {
  const answer = await fetch(path, { headers: known ? { "If-None-Match": known } : {}, cache: "no-store" });
  const date = Date.parse(answer.headers.get("Date"));
  if (date) serverAhead = date - Date.now();
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error((await answer.text()).trim() || "HTTP " + answer.status);
  return { etag: answer.headers.get("ETag"), body: await answer.json() };
}

const grown = { key: "", log: 0, at: 0 }; // run, time of its newest entry, and the reader's time when this entry was first drawn

// now returns the earlier of the host's time and the reader's time. It is never earlier than the time of the newest
// entry plus the time that this page has waited for the next entry.
const now = () => Math.max(Math.min(Date.now(), Date.now() + serverAhead), grown.log + Date.now() - grown.at);

function grow() {
  const log = data.history ? data.history.now : 0;
  if (grown.key !== data.key || grown.log !== log) Object.assign(grown, { key: data.key, log, at: Date.now() });
}

async function refresh() {
  try {
    const all = (await ask("api/runs")).body, list = all.runs;
    verifierBytes = all.verifier_bytes;
    const wanted = new URLSearchParams(location.hash.slice(1)).get("run");
    const chosen = list.find((r) => r.key === wanted) || list[0];
    if (!chosen) {
      $("runs").replaceChildren();
      $("run").replaceChildren(el("section", {}, el("h1", {}, "No runs"), el("p", {}, "There is nothing to show yet.")));
    } else {
      if (view.run !== chosen.key) { view.run = chosen.key; forget(); etag = ""; }
      showList(list);
      const run = view.run, answer = await ask(`api/run?run=${encodeURIComponent(run)}&last=${view.last}`, etag);
      if (run !== view.run) return; // the reader chose a different run meanwhile
      if (answer) { etag = answer.etag; host = { ...answer.body, key: run }; stale = true; }
      if (host) await followed();
      draw();
    }
    freshAt = Date.now();
    fresh("");
  } catch (error) {
    fresh(String(error.message || error));
  }
}

// followed waits up to half a polling interval for the verifier to verify new entries.
async function followed() {
  const done = follow(host, view.last).then((changed) => { stale ||= changed; if (changed) draw(); });
  await Promise.race([done, new Promise((go) => setTimeout(go, every / 2))]);
}

// forget drops the older events that the page has fetched.
function forget() { view.older = []; view.olderLeft = null; }

// draw redraws the run if anything changed, and every 10 s to update ages. It waits while the reader marks text or drags.
function draw() {
  const old = data && data.status && !isOver(data.status) && Date.now() - drawnAt > 10000;
  if ((stale || old) && !marking() && !dragging()) show();
}

function fresh(trouble) {
  const line = $("fresh");
  line.textContent = trouble ? `No answer since ${when(freshAt).slice(11)}: ${trouble}` : "As of " + when(Date.now()).slice(11);
  line.className = trouble ? "bad" : "muted";
}

const isOver = (r) => r.run_state === "Finished" || r.closed;

function showList(list) {
  const item = (r) => el("li", {}, el("a", { href: "#run=" + encodeURIComponent(r.key), "aria-current": r.key === view.run ? "page" : null }, r.run_id,
    el("small", {}, `${r.run_state}, step ${whole(Math.min(r.step, r.total_steps))} of ${whole(r.total_steps)}` + (r.problem ? ", trouble" : "")),
    list.some((other) => other !== r && other.run_id === r.run_id) ? el("small", {}, r.source) : null));
  const live = list.filter((r) => !isOver(r)), past = list.filter(isOver);
  const focused = document.activeElement && document.activeElement.closest("#runs a");
  const href = focused && focused.getAttribute("href");
  $("runs").replaceChildren(...live.map(item), ...(past.length ? [el("li", {}, el("h3", { class: "muted" }, "Past")), ...past.map(item)] : []));
  if (href) for (const a of $("runs").querySelectorAll("a")) if (a.getAttribute("href") === href) a.focus();
}

whenZoomed((text) => { show(); say(text); });

// marking reports whether the reader is selecting text, which a redraw would undo.
function marking() {
  const marked = getSelection();
  return !marked.isCollapsed && $("run").contains(marked.anchorNode);
}

let shownFrom = false; // whether the page draws verified data

// show redraws the run, and restores the focus and the scroll positions.
function show() {
  stale = false;
  drawnAt = Date.now();
  data = drawn(host);
  if (shownFrom !== isVerified(data.key)) { shownFrom = isVerified(data.key); forget(); }
  grow();
  const active = document.activeElement, inRun = active && $("run").contains(active);
  const mark = inRun ? active.id || active.dataset.sort || (active.closest("[data-chart]") || {}).dataset?.chart : null;
  const open = [...document.querySelectorAll("#run details[open]")].map((d) => d.id);
  const scrolled = [...document.querySelectorAll("#run .scroll")].map((s) => [s.id, s.scrollTop, s.scrollLeft]);
  const caret = active && active.tagName === "INPUT" ? active.selectionStart : null;
  const s = data.status;
  call(s && s.names);
  document.title = (s ? s.run_id : data.key) + " · Psyche";
  $("run").replaceChildren(...[overview(), learning(data), verification(host, data, verifierBytes, view.last, show), time(), curves(), members(), trials(data), log(), checkpoints(), evaluations(), costs(), join(), configuration()].filter(Boolean));
  markSources(data);
  for (const id of open) if ($(id)) $(id).open = true;
  for (const [id, top, left] of scrolled) if ($(id)) { $(id).scrollTop = top; $(id).scrollLeft = left; }
  if (mark) {
    const again = document.getElementById(mark) || document.querySelector(`#run [data-sort="${CSS.escape(mark)}"]`) || document.querySelector(`#run [data-chart="${CSS.escape(mark)}"] svg`);
    if (again) { again.focus({ preventScroll: true }); if (caret !== null && again.setSelectionRange) again.setSelectionRange(caret, caret); }
  }
}

const sum = (list, of) => list.reduce((total, r) => total + of(r), 0);
const whole8 = (spent) => spent.reduce((a, b) => a + b, 0);

function overview() {
  const s = data.status, h = data.history;
  if (!s) return el("section", {}, el("h1", {}, data.key), problem(), reading());
  const late = h ? h.rounds.slice(-10) : [], wall = sum(late, (r) => whole8(r.w));
  const kinds = { Finished: "muted", Paused: "bad", WaitingForMembers: "warn" };
  const tiles = [
    lossTile(s),
    tile("Step", `${whole(Math.min(h && !h.rounds.length ? s.step - 1 : s.step, s.total_steps))} of ${whole(s.total_steps)}`),
    leftTile(data, now()),
    tile("Epoch", whole(s.epoch)),
    tile("Members", `${whole(s.members.filter((m) => m.state === "Healthy").length)}` + (s.pending.length ? ` + ${whole(s.pending.length)} waiting` : "")),
    s.round ? tile("Witnesses", `${s.round.witnesses} of ${s.round.witnesses_elected}`, "proofs accepted in the running round", `quorum ${s.round.witness_quorum}`) : null,
  ];
  if (h) {
    tiles.push(
      tile("Tokens per second", wall && !silent(data, now()) ? short(sum(late, (r) => r.k) / wall * 1000) : "–", "of results that counted, over the newest rounds"),
      tile("Tokens", short(h.tokens), "of results that counted"),
      tile("A round lasts", late.length ? span(wall / sum(late, (r) => r.n)) : "–", "average of the newest rounds, including the time between rounds"),
      tile("Results that counted", late.length ? percent(sum(late, (r) => r.c) / sum(late, (r) => r.b)) : "–", "of the batches of the newest rounds; results on probation do not count"),
      tile("Idle", percent(idle(h.spent)), "share of the run's time in which it did not train"));
  }
  const points = data.reported ? data.reported.points : [];
  if (points.length) tiles.push(tile("Loss*", short(points.at(-1).l, 4), "mean of the losses in the members' event logs, nats per token", "as the host reports", "host"));
  return el("section", { "aria-labelledby": "title", class: silent(data, now()) ? "silent" : null },
    el("div", { class: "head" }, el("h1", { id: "title" }, s.run_id), el("span", { class: "badge " + (silent(data, now()) ? "muted" : kinds[s.run_state] || "good") }, s.run_state + (s.closed ? ", closed" : silent(data, now()) ? (data.behind ? ", not verified further" : ", silent") : "")),
      el("span", { class: "muted" }, s.run_state_start_unix_timestamp && s.run_state !== "Finished" ? "for " + span(now() - 1000 * s.run_state_start_unix_timestamp) : "")),
    s.name ? el("p", { id: "name" }, el("strong", {}, el("bdi", {}, s.name))) : null, s.description ? el("p", { id: "description" }, el("bdi", {}, s.description)) : null,
    problem(), saved ? null : alive(data, now()), waits(data), saved ? el("p", { class: "muted" }, data.source) : el("p", { class: "muted host" }, "Source, as the host reports: ", data.source), el("dl", { class: "tiles" }, tiles));
}

// reading draws the progress of a log that is still being read.
function reading() {
  const r = data.reading;
  return r ? el("p", {}, el("progress", { max: r.size, value: r.bytes, "aria-label": "Reading the log" }), ` The host reads and verifies its log: ${part(r.bytes, r.size)} of ${bytes(r.size)}`)
    : el("p", {}, "Its state is not known yet.");
}

function problem() { return data.problem ? el("p", { class: "problem host", role: "alert" }, "The host reports that it cannot follow the log of this run: " + data.problem) : null; }

// idle returns the share of time outside RoundTrain: waiting, Warmup, RoundWitness, Cooldown.
const idle = (spent) => { const busy = spent[3], wait = spent[1] + spent[2] + spent[4] + spent[5]; return busy + wait ? wait / (busy + wait) : NaN; };

function time() {
  const h = data.history;
  if (!h) return section("Time", el("p", { class: "muted" }, "The server keeps no journal (--save-state-dir), so there is no history."));
  const at = places(h), total = whole8(h.spent), rows = [1, 2, 3, 4, 5, 7].map((p) => ({ name: phases[p].name, ms: h.spent[p] }));
  return section("Time", el("div", { class: "pair" },
    el("figure", {}, el("figcaption", {}, "Newest phases"), timeline(h.phases, now()), h.phases.some((p) => p.t || p.u) ? tools("Newest phases") : null),
    lines({ title: "Idle share of a round", unit: "%", zero: true, curves: [{ name: "not training", points: h.rounds.map((r, i) => [at[i], 100 * idle(r.w)]) }], note: "Time in waiting, warmup, witnessing and cooldown, as a share of the time since the previous round." })),
  el("div", { class: "scroll", id: "s-phases", tabindex: 0, role: "region", "aria-label": "Time in phases" }, table("Time in phases", [
    { name: "Phase", value: (r) => r.name, left: true },
    { name: "Time", value: (r) => r.ms, show: (r) => span(r.ms) },
    { name: "Share", value: (r) => r.ms, show: (r) => percent(r.ms / total) },
  ], rows)));
}

function curves() {
  const h = data.history;
  if (!h) return null;
  const last = el("select", { id: "last", onchange: (e) => { view.last = Number(e.target.value); etag = ""; saved ? showSpan(view.last).then(show) : refresh(); } },
    [[0, "all"], [2000, "newest 2,000"], [500, "newest 500"], [100, "newest 100"]].map(([n, text]) => el("option", { value: n, selected: view.last === n }, text)));
  const at = places(h), rounds = h.rounds.map((r, i) => ({ ...r, at: at[i] })), speed = (r) => r.k / Math.max(1, whole8(r.w)) * 1000;
  const csv = el("button", { type: "button", id: "csv", onclick: () => save(h, data.status ? data.status.run_id : data.key) }, "Save as CSV");
  return section("Curves", el("div", { class: "controls" }, el("label", { for: "last" }, "Steps", last), controls(show), csv, chooser(saved || verifierBytes, show)), el("div", { class: "pair" },
    lines({ title: "Tokens per second", zero: true, curves: [{ name: "counted", points: rounds.map((r) => [r.at, speed(r)]) }, ...overlay(speed)], note: "Of results that counted, by the clock of the run's log." }),
    lines({ title: "Members of a round", zero: true, curves: [
      { name: "members", points: rounds.map((r) => [r.at, r.m / r.n]) }, { name: "elected witnesses", points: rounds.map((r) => [r.at, r.q / r.n]) },
      { name: "witness proofs", points: rounds.map((r) => [r.at, r.v / r.n]) }] }),
    lines({ title: "Results that counted", unit: "%", zero: true, curves: [{ name: "of all batches", points: rounds.filter((r) => r.b).map((r) => [r.at, 100 * r.c / r.b]) }] })));
}

function members() {
  const h = data.history, s = data.status;
  if (!s) return null;
  const said = new Map((data.reported ? data.reported.members : []).map((m) => [m.id, m]));
  let rows = h ? h.members : s.members.map((m) => ({ id: m.id, standing: m.state, last: 0, counted: 0, assigned: 0, probation: 0, tokens: 0, lost: 0, elected: 0, witnessed: 0, late: 0, slow: 0, accused: 0, accuses: 0, dropped: 0, ejected: 0, disagreed: 0, left: 0, entry: 0 }));
  const fallen = ["dropped", "ejected"].map((name) => [name, rows.filter((m) => m.standing === name).length]).filter(([, n]) => n);
  const total = rows.length, all = Math.max(1, h ? h.tokens : 0), probation = rows.some((m) => m.probation);
  if (view.find) rows = rows.filter((m) => m.id.toLowerCase().includes(view.find) || nameOf(m.id).toLowerCase().includes(view.find) || m.standing.includes(view.find));
  const columns = [
    { name: "Member", left: true, value: (m) => m.id, show: (m) => key(m.id) },
    { name: "Standing", left: true, value: (m) => m.standing, show: (m) => standing(m, s.epoch) },
    ...claimColumns(data),
    { name: "Counted", help: "rounds in which its result counted (as in its receipt), out of the rounds in which it had a batch", value: (m) => m.counted, show: (m) => `${whole(m.counted)} of ${whole(m.assigned)}` },
    { name: "Share", help: "its share of the tokens of all results that counted (as in its receipt)", value: (m) => m.tokens, show: (m) => el("span", { class: "whole" }, percent(m.tokens / all)) },
    ...(probation ? [{ name: "On probation", help: "rounds in which witnesses held its result, but the result could not count yet: the member was new, or its optimizer warmed up", value: (m) => m.probation, show: (m) => whole(m.probation) }] : []),
    { name: "Lost", help: "rounds in which no quorum of witnesses held its result", value: (m) => m.lost, show: (m) => whole(m.lost) },
    { name: "Witnessed", help: "rounds in which its proof was accepted, out of the rounds for which it was elected as a witness", value: (m) => m.witnessed, show: (m) => `${whole(m.witnessed)} of ${whole(m.elected)}` },
    { name: "Late", help: "times that it was found late or slow", value: (m) => m.late + m.slow, show: (m) => whole(m.late + m.slow) },
    { name: "Accused", help: "accepted accusations that witnesses lack its result", value: (m) => m.accused, show: (m) => bad(m.accused) },
    { name: "Accuses", help: "accepted accusations that it made", value: (m) => m.accuses, show: (m) => whole(m.accuses) },
    ...auditColumns(data),
    { name: "Dropped", value: (m) => m.dropped, show: (m) => bad(m.dropped) },
    { name: "Ejected", value: (m) => m.ejected, show: (m) => bad(m.ejected) },
    { name: "Other model", help: "reported a model that differs from the recorded model", value: (m) => m.disagreed, show: (m) => bad(m.disagreed) },
    { name: "Left", help: "times that it withdrew, or lost its connection", value: (m) => m.left, show: (m) => whole(m.left) },
    { name: "Since", help: "when its first action was accepted", value: (m) => m.first || 0, show: (m) => el("span", { class: "whole" }, m.first ? when(m.first).slice(0, 16) : m.last ? "the start" : "–") },
    { name: "Last seen", value: (m) => m.last, show: (m) => el("span", { class: "whole" }, m.last ? when(m.last).slice(5) : "–") },
  ];
  if (said.size) {
    const of = (m) => said.get(m.id) || {};
    columns.push(
      { name: "Loss*", host: true, value: (m) => of(m).loss ?? -1, show: (m) => of(m).loss >= 0 ? short(of(m).loss, 4) : "–" },
      { name: "Tokens/s*", host: true, value: (m) => of(m).speed || 0, show: (m) => of(m).speed ? short(of(m).speed) : "–" },
      { name: "Sent*", host: true, value: (m) => of(m).sent || 0, show: (m) => of(m).sent ? bytes(of(m).sent) : "–" },
      { name: "Received*", host: true, value: (m) => of(m).received || 0, show: (m) => of(m).received ? bytes(of(m).received) : "–" },
      ...claimedColumns(data, of),
      { name: "Memory*", host: true, value: (m) => of(m).memory || 0, show: (m) => of(m).memory ? bytes(of(m).memory) : "–" });
    const moves = (m) => [of(m).arrives, of(m).uploads].filter(Boolean);
    if (rows.some((m) => moves(m).length)) columns.splice(2, 0, { name: "Moving*", host: true, help: "its current downloads and uploads", left: true, value: (m) => moves(m).length, show: (m) => moves(m).length ? moves(m).map(moving) : "–" });
  }
  const limit = view.all ? rows.length : 50;
  const sort = (name) => { view.sort = { name, down: view.sort.name === name ? !view.sort.down : true }; show(); say(`Sorted by ${name}, ${view.sort.down ? "descending" : "ascending"}`); };
  const by = columns.find((c) => c.name === view.sort.name) || columns[0];
  const shown = [...rows].sort((a, b) => { const x = by.value(a), y = by.value(b); return (x < y ? -1 : x > y ? 1 : 0) * (view.sort.down ? -1 : 1); }).slice(0, limit);
  return section("Members",
    el("div", { class: "controls" },
      el("label", { for: "find" }, "Find a key, a name or a status", el("input", { id: "find", type: "search", value: view.find, oninput: (e) => { view.find = e.target.value.toLowerCase(); show(); } })),
      rows.length > 50 ? el("button", { type: "button", id: "all-members", onclick: () => { view.all = !view.all; show(); } }, view.all ? "Show 50" : `Show all ${rows.length}`) : null,
      fallen.map(([name, n]) => el("button", { type: "button", id: "find-" + name, class: "bad", "aria-pressed": String(view.find === name), onclick: () => { view.find = view.find === name ? "" : name; show(); } }, `${whole(n)} ${name}`)),
      el("span", { class: "muted" }, `${whole(total)} keys that took part`)),
    el("div", { class: "scroll", id: "s-members", tabindex: 0, role: "region", "aria-label": "Members, table" }, table("Members and their status", columns, shown, view.sort, sort)),
    said.size ? el("p", { class: "muted host" }, "* from the member's event log, as the host reports it; unsigned.") : null,
    total && rows.some((m) => nameOf(m.id)) ? el("p", { class: "muted" }, "A name in italics is the name that a member chose and signed when it joined. It proves nothing: another member may use the same name. Only the key identifies a member.") : null,
    claimColumns(data).length ? el("p", { class: "muted" }, "† a claim in the proofs that the member signs as a witness; not checked.") : null,
    h && s.config.verification_percent === 0 ? el("p", { class: "muted" }, "Audits: none in this run; whether a result was computed from its batch is not checked.") : null);
}

const words = {
  began: () => "The run began.", joined: (e) => [key(e.subject), " asked to join."], left: (e) => [key(e.subject), " left."],
  withdrawn: (e) => [key(e.subject), " was withdrawn by the host: its connection was lost."],
  accused: (e) => [key(e.actor), " accused ", key(e.subject), ` about step ${e.step}; the status of the accused did not change.`],
  returned: (e) => [key(e.subject), " took its seat in the running epoch back."],
  trial: (e) => [key(e.actor), " accused ", key(e.subject), ` of its result of step ${e.step}: ${e.detail}. A jury votes.`],
  "trial-over": (e) => ["The trial of ", key(e.subject), ` is over: ${e.detail}, ${e.count || 0} of ${e.of || 0} jurors voted guilty.`],
  late: (e) => [key(e.subject), ` was found late: witnesses did not have its result of step ${e.step}; accused by `, key(e.actor), "."],
  slow: (e) => [key(e.subject), ` was found slow about step ${e.step}: rounds of this epoch do not wait for it; accused by `, key(e.actor), "."],
  dropped: (e) => [key(e.subject), " was dropped: ", e.detail, e.actor ? [", about step " + e.step + "; accused by ", key(e.actor)] : "", "."],
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

function log() {
  const h = data.history;
  if (!h) return null;
  const newestEntry = h.events.length ? h.events.at(-1).n : 0;
  const older = view.older.filter((e) => e.n < newestEntry);
  const list = [...h.events, ...older].filter(groups[view.kind]);
  const left = view.olderLeft === null ? h.more : view.olderLeft;
  const more = async () => {
    const verified = shownFrom, answer = verified ? await events(left) : (await ask(`api/log?run=${encodeURIComponent(view.run)}&before=${left}`)).body;
    if (verified !== shownFrom) return;
    view.older = [...view.older, ...answer.events];
    view.olderLeft = answer.more;
    show();
  };
  return section("Events",
    el("div", { class: "controls" }, el("label", { for: "kind" }, "Show", el("select", { id: "kind", onchange: (e) => { view.kind = e.target.value; show(); } },
      Object.keys(groups).map((k) => el("option", { value: k, selected: k === view.kind }, k))))),
    el("div", { class: "scroll", id: "s-log", tabindex: 0, role: "region", "aria-label": "Events, list" },
      el("ol", { class: "events" }, list.map((e) => el("li", {}, el("span", { class: "muted" }, `${when(e.t)} · entry ${e.n} · `), (words[e.kind] || words.other)(e)))),
      list.length ? null : el("p", { class: "muted" }, "Nothing of this kind.")),
    left > 0 ? el("p", {}, el("button", { type: "button", id: "older", onclick: more }, "Show older")) : null,
    el("p", { class: "muted" }, "The number of an entry is its position in the run's log: psyche run replay --states shows the same entry. The time of an action is the time of the tick before it."
      + (h.forgotten ? ` ${whole(h.forgotten)} older events are only in the log.` : "")));
}

function checkpoints() {
  const h = data.history, rows = h ? h.checkpoints : [];
  const places = data.locations;
  if (!rows.length && !places.length) return null;
  return section("Checkpoints", el("div", { class: "pair" },
    el("div", {}, el("h3", {}, "Recorded by a quorum"), el("div", { class: "scroll", id: "s-check", tabindex: 0, role: "region", "aria-label": "Recorded checkpoints" },
      rows.length ? table("Recorded checkpoints", [
        { name: "Step", value: (c) => c.step, show: (c) => whole(c.step) }, { name: "Epoch", value: (c) => c.epoch },
        { name: "Digest", left: true, value: (c) => c.digest, show: (c) => el("code", { title: c.digest }, c.digest.slice(0, 16) + "…") },
        { name: "Entry", value: (c) => c.entry }, { name: "Time", value: (c) => c.time, show: (c) => when(c.time) }], rows) : el("p", { class: "muted" }, "None yet."))),
    el("div", {}, el("h3", {}, "Locations"), el("ul", {}, places.map((p) => el("li", {}, p.reporter ? `step ${whole(p.step)}: ` : "the run began with ", `${p.kind} `,
      p.link ? el("a", { href: p.link, rel: "noreferrer noopener" }, p.place) : el("code", {}, p.place), p.reporter ? [", reported by ", key(p.reporter), ` (entry ${p.entry})`] : null))))));
}

function evaluations() {
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

function costs() {
  const c = data.costs;
  if (!c) return null;
  const payers = Object.entries(c.payers || {}).map(([id, lamports]) => ({ id, lamports }));
  return section("Costs on the chain", el("dl", { class: "tiles" }, tile("Transactions", whole(c.transactions)), tile("Fees, at least", sol(c.lamports), "signatures of the transactions that changed the run; priority fees are not included")),
    el("p", { class: "muted" }, "Account ", el("code", {}, c.account), ", program ", el("code", {}, c.program), ", head of the log ", el("code", { title: c.head }, c.head.slice(0, 16) + "…")),
    el("div", { class: "scroll", id: "s-costs", tabindex: 0, role: "region", "aria-label": "Payments" }, table("Payments", [{ name: "Key", left: true, value: (p) => p.id, show: (p) => key(p.id) }, { name: "Paid", value: (p) => p.lamports, show: (p) => sol(p.lamports) }], payers, { name: "Paid", down: true })));
}

function join() {
  if (!data.status) return null;
  const address = location.hostname.includes(":") ? `[${location.hostname.replace(/[[\]]/g, "")}]` : location.hostname;
  const command = data.join.replaceAll("@@HOST@@", address);
  const copy = async () => {
    try { await navigator.clipboard.writeText(command); say("Copied."); $("copy").textContent = "Copied"; } catch {
      const range = document.createRange();
      range.selectNodeContents($("command"));
      getSelection().removeAllRanges(); getSelection().addRange(range);
      say("Selected: press Ctrl+C.");
    }
  };
  const n = data.join_needs;
  return hosts(section("Take part", data.join_note ? el("p", {}, data.join_note) : null,
    n ? el("dl", { class: "tiles", id: "needs" }, tile("Memory", bytes(n.memory), "weights, gradient, optimizer state and a model to serve to other members; for small models also a copy of the weights. The client prints the size of a batch before it joins", "at least, plus a batch"),
      tile("Disk", bytes(n.disk), "plus the checkpoint being written and the optimizer's state", "for three checkpoints"), tile("Model", bytes(n.model), null, "to get first"),
      n.result ? tile("In a round", "about " + bytes(n.result), null, "to and from each other trainer") : null) : null,
    command ? [linked(command, data), el("pre", { tabindex: 0, role: "region", "aria-label": "Command" }, el("code", { id: "command" }, command)), el("button", { type: "button", id: "copy", onclick: copy }, "Copy"),
      data.join_link ? el("details", { id: "as-qr" }, el("summary", {}, "The link as a QR code"), el("img", { class: "qr", loading: "lazy", alt: "QR code of the link to this run", width: 320, height: 320,
        src: `api/qr?run=${encodeURIComponent(data.key)}&host=${encodeURIComponent(address)}` })) : null] : null));
}

function configuration() {
  const s = data.status;
  if (!s) return null;
  const rows = Object.entries(s.config).map(([name, value]) => ({ name, value }));
  const keys = [["host", s.host], ["main authority", s.authority.main], ["join authority", s.authority.permissioned ? s.authority.join : "every key may join"], ["state hash", s.state_hash]];
  return section("Configuration",
    el("dl", { class: "facts" }, keys.map(([name, value]) => [el("dt", { class: "muted" }, name), el("dd", { class: "key" }, value)])),
    el("details", { id: "rules" }, el("summary", {}, "Rules"), el("div", { class: "scroll", id: "s-rules", tabindex: 0, role: "region", "aria-label": "Rules, table" }, table("Rules", [{ name: "Key", left: true, value: (r) => r.name, show: (r) => el("code", {}, r.name) }, { name: "Value", value: (r) => r.value }], rows))),
    data.model ? el("details", { id: "model" }, el("summary", {}, "Model, data and optimizer"), el("pre", { tabindex: 0, role: "region", "aria-label": "Model" }, JSON.stringify(data.model, null, 2))) : null);
}

// showSaved verifies a saved page's log, and draws the verified data.
async function showSaved() {
  host = { key: "saved", source: saved.source, status: null, history: null, locations: [], join: "", join_note: "" };
  const checked = checkSaved(progressed);
  show();
  await checked;
  show();
  $("fresh").textContent = "Saved: " + saved.source;
}

if (saved) showSaved();
else {
  window.addEventListener("hashchange", () => { refresh().then(() => $("main").focus()); });
  (async () => { for (;;) { if (!document.hidden || !data) await refresh(); await new Promise((go) => setTimeout(go, every)); } })();
}

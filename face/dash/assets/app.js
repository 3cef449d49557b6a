// The page: a list of runs, and all data about one of them, refreshed every two seconds.
import { call, el, jump, when, whole } from "./parts.js";
import { controls, save } from "./axes.js";
import { dragging, whenZoomed } from "./charts.js";
import { chooser } from "./other.js";
import { checkpoints, costs, details, evaluations } from "./details.js";
import { log } from "./events.js";
import { hero } from "./hero.js";
import { invitation, joinable } from "./invite.js";
import { members } from "./members.js";
import { done, isOver, phaseWords, state } from "./progress.js";
import { evidence } from "./story.js";
import { drawn, events, follow, isVerified, checkSaved, saved, span as showSpan } from "./check.js";
import { markSources, progressed, verification } from "./verify.js";

const every = 2000;
const view = { run: null, last: 0, sort: { name: "Counted", down: true }, find: "", all: false, kind: "all", older: [], olderLeft: null };
let etag = "", serverAhead = 0, freshAt = 0, verifierBytes = 0;
let host = null; // newest answer about the run; in a saved page, the facts outside the log
let data = null; // the part of host that the page draws, see drawn
let stale = false; // true if the drawing is older than host or check
let drawnAt = 0;
let failing = false; // the newest request failed
const patience = 10000; // time without an answer after which the page draws the host as dead, in ms

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
      if (failing) stale = true;
      [freshAt, failing] = [Date.now(), false];
      draw();
    }
    [freshAt, failing] = [Date.now(), false];
    fresh("");
  } catch (error) {
    failing = true;
    fresh(String(error.message || error));
    if (host && lost()) { stale = true; draw(); }
  }
}

// followed waits up to half a polling interval for the verifier to verify new entries.
async function followed() {
  const done = follow(host, view.last).then((changed) => { stale ||= changed; if (changed) draw(); });
  await Promise.race([done, new Promise((go) => setTimeout(go, every / 2))]);
}

// forget drops the older events that the page has fetched.
function forget() { view.older = []; view.olderLeft = null; }

let pressed = false; // a redraw between the press and the release of a button would lose the click
addEventListener("pointerdown", () => { pressed = true; }, true);
for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => setTimeout(() => { pressed = false; }), true);

// draw redraws the run if anything changed, and every 10 s to update ages. It waits while the reader marks text, drags or
// presses a button.
function draw() {
  const old = data && data.status && !isOver(data.status) && Date.now() - drawnAt > 10000;
  if ((stale || old) && !pressed && !marking() && !dragging()) show();
}

function fresh(trouble) {
  const line = $("fresh");
  line.textContent = trouble ? `No answer since ${when(freshAt).slice(11)}: ${trouble}` : "As of " + when(Date.now()).slice(11);
  line.className = trouble ? "bad" : "muted";
}

function showList(list) {
  const item = (r) => el("li", {}, el("a", { href: "#run=" + encodeURIComponent(r.key), "aria-current": r.key === view.run ? "page" : null }, r.name ? el("bdi", {}, r.name) : r.run_id,
    el("small", {}, `${phaseWords[r.run_state] || r.run_state}, ${whole(done(r))} of ${whole(r.total_steps)} rounds` + (r.problem ? ", trouble" : "")),
    list.some((other) => other !== r && other.run_id === r.run_id) ? el("small", {}, r.source) : null));
  const live = list.filter((r) => !isOver(r)), past = list.filter(isOver);
  const focused = document.activeElement && document.activeElement.closest("#runs a");
  const href = focused && focused.getAttribute("href");
  $("runs").replaceChildren(...live.map(item), ...(past.length ? [el("li", {}, el("h3", { class: "muted" }, "Past")), ...past.map(item)] : []));
  document.body.classList.toggle("alone", list.length < 2);
  if (href) for (const a of $("runs").querySelectorAll("a")) if (a.getAttribute("href") === href) a.focus();
}

whenZoomed((text) => { show(); say(text); });

// marking reports whether the reader is selecting text, which a redraw would undo.
function marking() {
  const marked = getSelection();
  return !marked.isCollapsed && ($("run").contains(marked.anchorNode) || $("invite").contains(marked.anchorNode));
}

// lost returns the time of the host's last answer, or 0 while it answers.
const lost = () => !saved && failing && Date.now() - freshAt > patience ? freshAt : 0;

// options draws the controls of the charts.
function options() {
  const last = el("select", { id: "last", onchange: (e) => { view.last = Number(e.target.value); etag = ""; saved ? showSpan(view.last).then(show) : refresh(); } },
    [[0, "all"], [2000, "newest 2,000"], [500, "newest 500"], [100, "newest 100"]].map(([n, text]) => el("option", { value: n, selected: view.last === n }, text)));
  const csv = el("button", { type: "button", id: "csv", onclick: () => save(data.history, data.status.run_id) }, "Save as CSV");
  return el("details", { id: "chart-options" }, el("summary", {}, "Options of all charts"),
    el("div", { class: "controls" }, el("label", { for: "last" }, "Steps", last), controls(show), data.history ? csv : null, chooser(saved || verifierBytes, show)));
}

// more fetches a page of older events; before is the number of events that the page does not have yet.
async function more(before) {
  const verified = shownFrom, answer = verified ? await events(before) : (await ask(`api/log?run=${encodeURIComponent(view.run)}&before=${before}`)).body;
  if (verified !== shownFrom) return;
  view.older = [...view.older, ...answer.events];
  view.olderLeft = answer.more;
  show();
}

let inviting = false; // the reader has opened the invitation

// invite opens the invitation above the page.
function invite() {
  inviting = true;
  show();
  $("invite").showModal();
}
$("take-part").addEventListener("click", () => { if (joinable(data)) invite(); else jump("h-use-the-model"); });
$("invite").addEventListener("close", () => {
  inviting = false;
  show();
  if (document.activeElement === document.body) $("take-part").focus(); // a redraw has replaced the button that had the focus
});
$("invite").addEventListener("click", (e) => { if (e.target === $("invite") || e.target.closest("#close")) $("invite").close(); });

const goal = { false: "Take part", true: "Use the model" }; // text of the button in the header, by whether the run is finished

// decorate shows the state of a run in the title and the icon of the page, and the button in the header.
function decorate(now) {
  const s = data.status;
  document.title = (s ? s.name || s.run_id : data.key) + " · Psyche";
  const over = Boolean(s) && s.run_state === "Finished", button = $("take-part");
  button.hidden = !over && !joinable(data);
  if (button.textContent !== goal[over]) button.textContent = goal[over];
  if (saved) return;
  const tone = s ? state(data, now, lost()).tone : "muted", icon = document.querySelector("link[rel=icon]"), address = "icon.svg?tone=" + tone;
  if (icon.getAttribute("href") !== address) icon.setAttribute("href", address);
}

let shownFrom = false; // whether the page draws verified data

// show redraws the run, and restores the focus and the scroll positions.
function show() {
  stale = false;
  drawnAt = Date.now();
  data = drawn(host);
  if (shownFrom !== isVerified(data.key)) { shownFrom = isVerified(data.key); forget(); }
  grow();
  const active = document.activeElement, places = [$("run"), $("invite")], inRun = active && places.some((p) => p.contains(active));
  const mark = inRun ? active.id || active.dataset.sort || (active.closest("[data-chart]") || {}).dataset?.chart : null;
  const open = [...document.querySelectorAll("#run details[open]")].map((d) => d.id);
  const scrolled = [...document.querySelectorAll("#run .scroll")].map((s) => [s.id, s.scrollTop, s.scrollLeft]);
  const caret = active && active.tagName === "INPUT" ? active.selectionStart : null;
  const time = now(), can = joinable(data);
  call(data.status && data.status.names);
  decorate(time);
  const page = { now: time, lost: lost(), size: verifierBytes, last: view.last, changed: show, say, options, invites: can && !inviting, invite: saved ? null : invite };
  const first = hero(host, data, page).flat().filter(Boolean), charted = first.some((part) => part.querySelector('[data-chart="Loss"]'));
  $("run").replaceChildren(...[...first, evidence(data), members(data, view, show, say), verification(host, data, verifierBytes, view.last, show), log(data, view, show, more),
    checkpoints(data), evaluations(data), costs(data), details(data, time, open.includes("details"), charted ? null : options(), show)].filter(Boolean));
  if (!can && $("invite").open) $("invite").close(); // the run is over, or it is another run
  const below = can && !$("run").querySelector("#h-take-part");
  $("invite").replaceChildren(...(below ? [el("button", { type: "button", id: "close", "aria-label": "Close" }, "×"), invitation(data, say)] : []));
  markSources(data);
  for (const id of open) if ($(id)) $(id).open = true;
  for (const [id, top, left] of scrolled) if ($(id)) { $(id).scrollTop = top; $(id).scrollLeft = left; }
  if (mark) {
    const again = document.getElementById(mark) || document.querySelector(`#run [data-sort="${CSS.escape(mark)}"]`) || document.querySelector(`#run [data-chart="${CSS.escape(mark)}"] svg`);
    if (again) { again.focus({ preventScroll: true }); if (caret !== null && again.setSelectionRange) again.setSelectionRange(caret, caret); }
  }
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

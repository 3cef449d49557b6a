// Draws the section about the check of the log, and a mark under each other section: proven, claimed or reported.
import { bytes, clock, el, jump, part, section, when, whole } from "./parts.js";
import { check, checkHost, eventOf, fewer, isVerified, of, saved } from "./check.js";
import { joined, named } from "./named.js";

const $ = (id) => document.getElementById(id);

// pasted contains the reader's text. If it is a head of the chain, event is the number of its
// event.
const pasted = { text: "", event: 0 };
let redraw = () => {};

// progressed draws the progress of the check.
export function progressed() {
  const bar = $("verify-progress"), p = check.progress;
  if (!bar || !p) return;
  bar.value = p.bytes;
  $("verify-count").textContent = `${part(p.bytes, bar.max)}: ${bytes(p.bytes)} of ${bytes(bar.max)}, ${whole(p.records)} entries verified`;
}

const fact = (name, value) => value ? [el("dt", { class: "muted" }, name), el("dd", { class: "key" }, value)] : null;

const isHead = (text) => /^[0-9a-f]{64}$/.test(text);

// tell processes the text that the reader pastes. It searches for a hash among the heads of a
// chain's log.
function tell(text, report) {
  pasted.text = text;
  pasted.event = 0;
  if (report.chain && isHead(text.trim()) && text.trim() !== report.run) find(text);
  redraw();
}

async function find(text) {
  const event = await eventOf(text.trim());
  if (pasted.text === text) { pasted.event = event; redraw(); }
}

const say = (good, words) => el("p", { role: "status", class: good ? "good" : good === null ? "warn" : "bad" }, words);

// judged compares the pasted text with the verified run.
function judged(report, runID) {
  const text = pasted.text.trim();
  if (!text) return null;
  const verdict = named(text, report, runID);
  if (verdict.good || !report.chain || !isHead(text)) return say(verdict.good, verdict.words);
  if (!pasted.event) return say(false, "This log never had that head: the head belongs to another log, or the account has changed since the log was checked.");
  return say(true, pasted.event === report.chain.event ? `If that is the head of the run's account, this log matches the chain, complete and unchanged, up to event ${whole(pasted.event)}.`
    : `The log had that head after event ${whole(pasted.event)} of ${whole(report.chain.event)}. If it is the head of the run's account, the log matches the chain up to that event.`);
}

function found(report, data) {
  const good = report.verified, c = report.chain, was = check.earlier;
  return [
    el("p", { role: "status" }, el("strong", { class: good ? "good" : "bad" }, good ? "Verified by your browser. " : "Not verified. "),
      good ? `${whole(report.records)} entries with ${whole(report.signatures)} signatures, each checked by the rules. The data that this page shows from the log follows from them.` + (c ? " To check that they happened on the chain, in this order, compare the head of the log with the head of the run's account." : "")
        : [report.problem, `. The ${whole(report.records)} entries before it are valid.`],
      report.torn ? ` ${whole(report.torn)} bytes after them are an unfinished write.` : ""),
    data.behind && !report.broken ? el("p", { class: "host" }, `The host reports ${whole(data.behind)} entries more, which are not shown until they are verified.`) : null,
    fewer(data.key) ? el("p", { class: "problem host", role: "alert" }, `The host reports fewer entries than the ${whole(report.records)} that it gave to this browser: it has withdrawn entries.`) : null,
    good && was ? el("p", { id: "verify-earlier", class: "problem", role: "alert" }, `At ${when(was.at)} the host's report differed from its log: ${was.problem}.`) : null,
    el("dl", { class: "facts" }, fact(c ? "this run (hash of its program and account)" : "this run (hash of its genesis)", report.run), fact("host", report.host), c ? [fact("account", c.account), fact("program", c.program), fact("began by", c.began)] : null,
      fact("main authority", report.authority), fact("state", report.state), c ? [fact(`head, after event ${whole(c.event)}`, c.head), fact("chain, as the archive's author claims", c.genesis)] : null),
    el("label", { for: "verify-told", class: "told" }, "Is this the run that you expect? Paste the invite link or the hash that you received from another source" + (c ? ", or the head of its account as psyche run status prints it" : ""),
      el("input", { id: "verify-told", type: "text", value: pasted.text, autocomplete: "off", oninput: (e) => tell(e.target.value, report) })),
    judged(report, data.status ? data.status.run_id : ""),
  ];
}

// Source of each section, by the id of its heading. The seal is the mark of the first screen.
const sources = {
  "h-loss": "claimed", "h-claims": "claimed", "h-evidence": "log", "h-members": "log", "h-technical-details": "log", "h-events": "log", "h-checkpoints": "log",
  "h-as-reported-by-members": "said", "h-costs-on-the-chain": "log", "h-take-part": "host", "h-use-the-model": "log",
};

// markSources adds the mark under each heading.
export function markSources(data) {
  const proven = isVerified(data.key), report = proven && check.report, chain = proven && report.chain, whose = chain && pasted.event !== chain.event;
  const entries = proven && `the first ${whole(report.records)} entries of the log`;
  const words = {
    log: !proven ? ["muted", data.history ? "From the log, as the host reports it, except for marked data." : "As the host reports it."]
      : !report.verified ? ["bad", `Follows from ${entries}, which are valid, except for marked data; “Believe nothing” lists the invalid data.`]
        : whose ? ["muted", `Follows from signed actions (${entries}), except for marked data; the head of the log proves that they are on the chain.`]
          : ["good", `Proven in this browser from ${entries}, except for marked data.`],
    claimed: ["muted", proven ? "Members' claims: signatures proven, values not." : "Members' claims, as the host reports; not proven."],
    said: ["muted", "Claims of members, as the host reports them; unsigned."],
    host: ["muted", "As the host reports it; no log proves it."],
  };
  for (const [id, source] of Object.entries(sources)) {
    const heading = $(id);
    if (!heading || saved && source === "host") continue;
    const of = heading.closest("[data-said]") ? "said" : source;
    (heading.closest(".lead, summary") || heading).after(el("p", { class: "source " + words[of][0] + (of === "said" || of === "host" ? " host" : "") }, words[of][1]));
  }
}

// linked compares the link in the command to join with the verified run.
export function linked(command, data) {
  if (!isVerified(data.key) || saved) return null;
  const verdict = joined(command, check.report, data.status.run_id);
  if (!verdict) return command ? el("p", { class: "muted" }, "This page does not compare this command with the run that was verified.") : null;
  if (verdict.good) return el("p", { class: "good" }, "The link in the command names the run that was verified. Its address, and the QR code, are as the host reports.");
  return el("p", { class: "problem", role: "alert" }, "The link in the command does not name the run that was verified. " + verdict.words);
}

const mark = (kind) => el("span", { class: "stamp " + kind, "aria-hidden": "true" }, { good: "✓", bad: "!", muted: "?" }[kind]);

// start begins a check of the host's log.
function start(host, last, changed) {
  checkHost(host, last, progressed).then(changed);
  changed();
}

// linkedRun compares a link to a run, which the host reports, with the verified run. It returns a warning or null.
export function linkedRun(link, data) {
  const verdict = isVerified(data.key) && !saved ? named(link, check.report, data.status.run_id) : null;
  return verdict && !verdict.good ? el("p", { class: "problem", role: "alert" }, "The link does not name the run that was verified. " + verdict.words) : null;
}

// seal draws the result of the check in short: what was verified, and when. Without a result, its button starts the check.
export function seal(host, data, size, last, now, changed) {
  const log = host.log || saved && saved.log, report = of(data.key), busy = check.run === data.key && check.busy;
  const show = (kind, title, text, does) => el(does ? "button" : "p", { id: "seal", type: does ? "button" : null, class: kind, onclick: does }, mark(kind), el("span", {}, el("strong", {}, title), el("small", {}, text)));
  const more = () => jump("h-believe-nothing");
  if (busy) return show("muted", "Verifying …", "in this browser", more);
  if (!report) return !log || !size ? show("muted", "As the host reports it", "this page cannot check it", null)
    : show("muted", "Verify this run", "now: as the host reports it", () => start(host, last, changed));
  if (!report.verified || fewer(data.key)) return show("bad", "Not verified", "see what is wrong", more);
  return show("good", "Verified in this browser", [`${whole(report.records)} entries, ${whole(report.signatures)} signatures, ${clock(check.at, now)}`,
    data.behind ? el("span", { class: "host" }, `; the host reports ${whole(data.behind)} more`) : null], more);
}

// verification draws the section about the check. host is the host's answer, data the drawn data,
// and size the size of the verifier in bytes; 0 means that the server has none.
export function verification(host, data, size, last, changed) {
  const log = host.log || saved && saved.log, report = of(data.key);
  if (!report && (!log || !saved && !size)) return null;
  redraw = changed;
  const mine = check.run === data.key, busy = mine && check.busy;
  return section("Believe nothing",
    busy ? el("p", {}, el("progress", { id: "verify-progress", max: log.bytes, value: check.progress ? check.progress.bytes : 0, "aria-label": "Verifying the log" }), " ", el("span", { id: "verify-count" }, "Fetching the verifier")) : null,
    mine && check.failed ? el("p", { class: "problem host", role: "alert" }, report ? "Newer entries could not be fetched from the host: " + check.failed : "The log was not checked: " + check.failed) : null,
    report ? found(report, data) : null,
    saved || busy || !log ? null : el("p", { class: "host" }, el("button", { type: "button", id: "verify", onclick: () => start(host, last, changed) }, report ? "Check it again" : "Check the log in this browser"),
      ` The host reports ${whole(log.records)} entries: ${bytes(log.bytes)} and a verifier of ${bytes(size)} are fetched.`),
    el("details", { id: "proven" }, el("summary", {}, "Proven data, claims, and reports of the host"), el("p", { class: "muted" }, "All data on this page comes from the run's log, which every reader can verify, with three exceptions. Members signed the claims (†, and the loss): the signatures are proven, the values are not. Values with * are unsigned claims of members, which the host forwards. ",
      "Data marked “as the host reports” is unproven: the address of the run and how to take part, the list of runs, the absence of later entries, and the current time. ",
      data.costs ? "Ticks on a chain are unsigned. Their times and draws, and the order and completeness of the actions, are proven if the head of the log equals the head of the run's account. Any node of the chain reports that head (psyche run status; psyche run archive compares). " : "",
      saved ? "This file verified its own log before it showed any data. The author of the file could have put a different verifier into it. "
        : "Once this browser has verified the log, it shows only its verifier's data, not the host's. Later entries appear as soon as they are verified. The server of this page also serves its verifier. ",
      "To rely on no server, verify the log with your own copy: psyche run replay LOG.")));
}

// The log, checked by the reader's own browser: of a page from a server when the reader asks for it, of a saved one
// before anything is shown.
import { bytes, el, part, section, whole } from "./parts.js";

const $ = (id) => document.getElementById(id);
const policy = globalThis.trustedTypes ? trustedTypes.createPolicy("worker", { createScriptURL: (url) => url }) : { createScriptURL: (url) => url };

// saved is what a saved page has in it; null in a page from a server.
export const saved = $("saved-facts") ? JSON.parse($("saved-facts").textContent) : null;

// check is the newest check of a log; run names which.
const check = { run: null, busy: false, progress: null, report: null, failed: "", told: "", event: 0 };
let worker = null, waiting = null;

const maxLog = 128 << 20; // bytes, unpacked

function unpacked(text) {
  const piece = 1 << 20, parts = [];
  for (let at = 0; at < text.length; at += piece) parts.push(Uint8Array.from(atob(text.slice(at, at + piece)), (c) => c.charCodeAt(0)));
  return new Blob(parts);
}

const ofPage = (id) => unpacked($(id).textContent);

async function gunzipped(blob) {
  const parts = [];
  let size = 0;
  for (const reader = blob.stream().pipeThrough(new DecompressionStream("gzip")).getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    if ((size += value.length) > maxLog) throw new Error("its log is too long for a page");
  }
}

// savedLog is the log in the text of a saved page.
export async function savedLog(page) {
  const found = /<script id="saved-log" type="application\/octet-stream">([A-Za-z0-9+\/=]*)<\/script>/.exec(page);
  if (!found) throw new Error("it is a page without a log");
  return gunzipped(unpacked(found[1]));
}

// savedProgram is the verifier in a saved page; undefined: a worker fetches it.
export const savedProgram = async () => saved ? (await gunzipped(ofPage("saved-verifier"))).buffer : undefined;

// newWorker starts what a verifier runs in.
export function newWorker() {
  const source = saved ? URL.createObjectURL(new Blob([ofPage("saved-worker")], { type: "text/javascript" })) : "worker.js";
  return new Worker(policy.createScriptURL(source), saved ? {} : { type: "module" });
}

function start(job, changed) {
  if (worker) worker.terminate();
  worker = newWorker();
  Object.assign(check, { run: job.run, busy: true, progress: null, report: null, failed: "", event: 0 });
  return new Promise((done) => {
    const ended = (change) => { Object.assign(check, change, { busy: false }); changed(); done(); };
    worker.onerror = (e) => ended({ failed: e.message || "the verifier did not start" });
    worker.onmessage = ({ data }) => {
      if (data.kind === "progress") { check.progress = data.value; drawProgress(job.bytes); }
      else if (data.kind === "report") ended({ report: data.value });
      else if (data.kind === "failed") ended({ failed: data.value });
      else if (data.kind === "event") { if (data.value.head === check.told.trim()) { check.event = data.value.event; redraw(); } }
      else if (waiting) { waiting(JSON.parse(data.value)); waiting = null; }
    };
    worker.postMessage(job);
    changed();
  });
}

// checkSaved verifies the log of a saved page.
export async function checkSaved(changed) {
  const [log, program] = await Promise.all([gunzipped(ofPage("saved-log")), savedProgram()]);
  await start({ run: "saved", log, program, bytes: log.length, told: saved.told }, changed);
}

// askSaved answers what a server would, from the verified log.
export async function askSaved(path) {
  const query = new URLSearchParams(path.split("?")[1] || "");
  if (path === "api/runs") return { runs: [], verifier_bytes: 0 };
  const answer = new Promise((done) => { waiting = done; });
  worker.postMessage(path.startsWith("api/log") ? { events: Number(query.get("before")) } : { show: Number(query.get("last")) });
  return answer;
}

function drawProgress(total) {
  const bar = $("verify-progress");
  if (!bar || !check.progress) return;
  bar.value = check.progress.bytes;
  $("verify-count").textContent = `${part(check.progress.bytes, total)}: ${bytes(check.progress.bytes)} of ${bytes(total)}, ${whole(check.progress.records)} entries verified`;
}

const fact = (name, value) => value ? [el("dt", { class: "muted" }, name), el("dd", { class: "key" }, value)] : null;

const isHead = (text) => /^[0-9a-f]{64}$/.test(text);

// told takes what the reader pastes. The head of a chain's log is looked for among those that the log had.
function told(text, report) {
  check.told = text;
  check.event = 0;
  if (report.chain && isHead(text.trim()) && text.trim() !== report.run) worker.postMessage({ head: text.trim() });
  redraw();
}

// names reports whether a link or a hash names the run that was checked.
function names(text, report, runID) {
  if (!report.chain) return text.includes(report.run) || text === report.host;
  const c = report.chain, link = `psyche+solana://${c.program}/${encodeURIComponent(runID)}?authority=${c.began}`;
  return [report.run, c.account].includes(text) || text.replace(/^'|'$/g, "").split("&")[0] === link;
}

// judged says what the pasted text says of the log.
function judged(report, runID) {
  const text = check.told.trim();
  if (!text) return null;
  const say = (good, words) => el("p", { role: "status", class: good ? "good" : "bad" }, words);
  if (names(text, report, runID)) return say(true, "It is.");
  if (!report.chain) return say(false, "It is not: that names another run, or another host.");
  if (!isHead(text)) return say(false, "It is not: that names another run, or another program.");
  if (!check.event) return say(false, "This log never had that head: it is of another log, or the account has gone on since the log was checked.");
  return say(true, check.event === report.chain.event ? `If that is the head of the run's account, this log is the chain's: whole and unchanged, up to event ${whole(check.event)}.`
    : `The log had that head after event ${whole(check.event)} of ${whole(report.chain.event)}: if it is that of the run's account, the log is the chain's up to there.`);
}

function found(report, runID) {
  const good = report.verified, c = report.chain;
  return [
    el("p", { role: "status" }, el("strong", { class: good ? "good" : "bad" }, good ? "Verified by your browser. " : "Not verified. "),
      good ? `${whole(report.records)} entries with ${whole(report.signatures)} signatures, each done again by the rules, and the state after them is the one that is shown.` + (c ? " That they happened on the chain, so and in this order, the head of the log shows, to who compares it with that of the run's account." : "")
        : [report.problem, `. The ${whole(report.records)} entries before that do verify.`],
      report.torn ? ` ${whole(report.torn)} bytes after them are an unfinished write.` : ""),
    el("dl", { class: "facts" }, fact(c ? "this run (hash of its program and account)" : "this run (hash of its genesis)", report.run), fact("host", report.host), c ? [fact("account", c.account), fact("program", c.program), fact("began by", c.began)] : null,
      fact("main authority", report.authority), fact("state", report.state), c ? [fact(`head, after event ${whole(c.event)}`, c.head), fact("chain, as who made the archive says", c.genesis)] : null),
    el("label", { for: "verify-told", class: "told" }, "Is it the run that you mean? Paste the link or the hash that you were given by somebody else" + (c ? ", or the head that psyche run status tells of its account" : ""),
      el("input", { id: "verify-told", type: "text", value: check.told, autocomplete: "off", oninput: (e) => told(e.target.value, report) })),
    judged(report, runID),
  ];
}

let redraw = () => {};

// Where each section's content comes from, by its heading.
const sources = {
  "h-learning": "claimed", "h-time": "log", "h-curves": "log", "h-members": "log", "h-trials": "log", "h-what-happened": "log", "h-checkpoints": "log",
  "h-as-reported-by-members": "said", "h-costs-on-the-chain": "log", "h-configuration": "log",
};

// markSources says under each heading whether what follows is proven, claimed, or somebody's word.
export function markSources(data) {
  const proven = check.report && check.report.verified && check.run === (saved ? "saved" : data.key) && data.status && check.report.state === data.status.state_hash;
  const chain = proven && check.report.chain, whose = chain && check.event !== chain.event;
  const words = {
    log: whose ? ["muted", "Follows from signed actions, but for what is marked; that they are the chain's, the head of the log shows."]
      : proven ? ["good", "Proven in this browser, but for what is marked."] : ["muted", "From the log, but for what is marked."],
    claimed: ["muted", (proven ? "It is proven that members signed these claims" : "Members signed these claims") + ", not that they are true."],
    said: ["muted", "The word of members; nobody signed it."],
  };
  for (const [id, source] of Object.entries(sources)) {
    const heading = $(id);
    if (heading && data.history) heading.after(el("p", { class: "source " + words[source][0] }, words[source][1]));
  }
}

// verification is the part of the page about the check. size is that of the verifier, 0: there is none.
export function verification(data, size, changed) {
  const log = data.log || saved && saved.log;
  if (!log || !saved && !size) return null;
  redraw = changed;
  const mine = check.run === (saved ? "saved" : data.key);
  const go = () => start({ run: data.key, bytes: log.bytes, told: { records: log.records, head: log.head, state: data.status ? data.status.state_hash : "" } }, changed);
  return section("Believe nothing",
    mine && check.busy ? el("p", {}, el("progress", { id: "verify-progress", max: log.bytes, value: check.progress ? check.progress.bytes : 0, "aria-label": "Verifying the log" }), " ", el("span", { id: "verify-count" }, "Fetching the verifier")) : null,
    mine && check.failed ? el("p", { class: "problem", role: "alert" }, "The log was not checked: " + check.failed) : null,
    mine && check.report ? found(check.report, data.status ? data.status.run_id : "") : null,
    saved || mine && check.busy ? null : el("p", {}, el("button", { type: "button", id: "verify", onclick: go }, mine && check.report ? "Check it again" : "Check the log in this browser"),
      ` ${whole(log.records)} entries: ${bytes(log.bytes)} and a verifier of ${bytes(size)} are fetched.`),
    el("details", { id: "proven" }, el("summary", {}, "What is proven, claimed, and the host's word"), el("p", { class: "muted" }, "Everything on this page comes from the run's log, which anybody can verify, but for three kinds of things. Claims (†, and the loss) were signed by members: that they said so is proven, not that it is true. What is marked with * members say, unsigned. ",
      data.costs ? "Nobody signs ticks on a chain: their times and draws, the order of actions, and that none was left out, are proven as far as the head of the log is that of the run's account, which any node of the chain tells (psyche run status; psyche run archive compares). That the log has no later entries is the word of who shows it. " : "That the log has no later entries, and who is connected, is the host's word. ",
      saved ? "This file verified its own log before it showed anything; whoever made the file could have put another verifier into it. "
        : "Who serves this page serves its verifier, too. ",
      "To believe nobody, verify the log with your own copy: psyche run replay LOG.")));
}

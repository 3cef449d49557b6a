// Verifies the log of a run in this browser, and selects the data that the page draws.

const $ = (id) => document.getElementById(id);
const policy = globalThis.trustedTypes ? trustedTypes.createPolicy("worker", { createScriptURL: (url) => url }) : { createScriptURL: (url) => url };

// saved contains the facts in a saved page; null in a page from a server.
export const saved = $("saved-facts") ? JSON.parse($("saved-facts").textContent) : null;

// check is the newest check of a log.
//
//   run       key of the run
//   busy      true until the first report
//   progress  {bytes, records} verified so far
//   report    newest report of the verifier
//   shown     verified data, at the entries of report; null if nothing is verified
//   at        time of report
//   last      number of newest steps in the curves of shown
//   compared  host's description of its log that report was compared with, as JSON
//   failed    error of the newest attempt to fetch or verify
//   earlier   {at, problem} of the newest report with a problem
//   fewer     number of consecutive answers in which the host reported fewer entries than are verified
export const check = { run: null };

const fresh = { busy: true, progress: null, report: null, shown: null, at: 0, last: 0, compared: "", failed: "", earlier: null, fewer: 0 };

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

// savedLog returns the log in the text of a saved page.
export async function savedLog(page) {
  const found = /<script id="saved-log" type="application\/octet-stream">([A-Za-z0-9+\/=]*)<\/script>/.exec(page);
  if (!found) throw new Error("it is a page without a log");
  return gunzipped(unpacked(found[1]));
}

// savedProgram returns the verifier in a saved page; undefined means that a worker fetches it.
export const savedProgram = async () => saved ? (await gunzipped(ofPage("saved-verifier"))).buffer : undefined;

// newVerifier starts a worker. ask sends it a job of worker.js and resolves to its answer.
export function newVerifier(progress) {
  const source = saved ? URL.createObjectURL(new Blob([ofPage("saved-worker")], { type: "text/javascript" })) : "worker.js";
  const worker = new Worker(policy.createScriptURL(source), saved ? {} : { type: "module" });
  const waiting = new Map();
  let jobs = 0;
  const end = (why) => {
    for (const { refuse } of waiting.values()) refuse(new Error(why));
    waiting.clear();
  };
  worker.onerror = (e) => end(e.message || "the verifier did not start");
  worker.onmessage = ({ data }) => {
    if (data.kind === "progress") return progress(data.value);
    const { done, refuse } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.kind === "failed") refuse(new Error(data.value)); else done(data.value);
  };
  return {
    ask: (job) => new Promise((done, refuse) => { waiting.set(++jobs, { done, refuse }); worker.postMessage({ ...job, id: jobs }); }),
    stop: () => { worker.terminate(); end("stopped"); },
  };
}

let verifier = null, progressed = () => {};

// begin starts a check of a run with a new verifier.
function begin(run) {
  if (verifier) verifier.stop();
  const mine = verifier = newVerifier((p) => { if (mine === verifier) { check.progress = p; progressed(); } });
  Object.assign(check, fresh, { run });
  return mine;
}

// take runs a job that returns a report, then stores the report and the verified data.
async function take(mine, job, last, compared) {
  let change;
  try {
    const report = await mine.ask(job), shown = await mine.ask({ do: "show", last });
    change = { report, at: Date.now(), last, compared, failed: "", shown: shown.status ? shown : null };
    if (report.problem) change.earlier = { at: Date.now(), problem: report.problem };
  } catch (error) {
    change = { failed: String(error.message || error) };
  }
  if (mine === verifier) Object.assign(check, change, { busy: false });
}

// checkSaved verifies the log of a saved page.
export async function checkSaved(onprogress) {
  progressed = onprogress;
  const mine = begin("saved");
  const [log, program] = await Promise.all([gunzipped(ofPage("saved-log")), savedProgram()]);
  await take(mine, { do: "file", log, program, told: saved.told }, 0, "");
}

const count = (n) => Number.isSafeInteger(n) && n > 0 ? n : 0;

// hostLog returns the host's description of its log.
function hostLog(host) {
  const log = host.log || {};
  return { bytes: count(log.bytes), told: { records: count(log.records), head: String(log.head || ""), state: String(host.status && host.status.state_hash || "") } };
}

// checkHost fetches and verifies the log of a run on the page's server.
export async function checkHost(host, last, onprogress) {
  progressed = onprogress;
  const { bytes, told } = hostLog(host), before = of(host.key);
  if (before) told.run = before.run; // a different run is a problem
  await take(begin(host.key), { do: "fetch", run: host.key, bytes, told }, last, JSON.stringify({ bytes, told }));
}

let following = false;

// follow verifies entries that the host's log has gained, and reports whether anything changed.
export async function follow(host, last) {
  const r = of(host.key);
  if (!r || following || check.busy) return false;
  const { bytes, told } = hostLog(host), compared = JSON.stringify({ bytes, told });
  check.fewer = told.records < r.records ? check.fewer + 1 : 0;
  const news = !r.broken && told.records >= r.records && compared !== check.compared;
  if (!news && last === check.last) {
    const healed = check.failed && compared === check.compared;
    if (healed) check.failed = "";
    return healed || check.fewer > 0;
  }
  following = true;
  try {
    if (news) await take(verifier, { do: "fetch", run: host.key, bytes, told }, last, compared);
    else await span(last);
  } finally { following = false; }
  return true;
}

// span fetches verified data with curves of the newest last steps.
export async function span(last) {
  const mine = verifier, shown = await mine.ask({ do: "show", last });
  if (mine === verifier && shown.status) Object.assign(check, { shown, last });
}

// of returns the newest report about a run, or null if there is none.
export const of = (key) => check.run === key && check.report || null;

// isVerified reports whether the page draws verified entries of a run.
export const isVerified = (key) => check.run === key && Boolean(check.shown);

// behind returns the number of entries that the host reports and that are not yet verified.
export const behind = (host) => isVerified(host.key) && !saved ? Math.max(0, hostLog(host).told.records - check.report.records) : 0;

// fewer reports whether the host has withdrawn entries. A single answer may be older than the
// newest answer because a server cached it; three consecutive answers are not.
export const fewer = (key) => check.run === key && check.fewer > 2;

// drawn selects the data that the page draws. After a check, everything that a log contains comes from the verifier, and
// only the fields named here come from the host.
export function drawn(host) {
  if (!isVerified(host.key)) return host;
  const { key, source, problem, log, reading, reported, join, join_note, join_install, join_link, join_needs, use_link, talk, samples } = host;
  return { key, source, problem, log, reading, reported, join, join_note, join_install, join_link, join_needs, use_link, talk, samples, ...check.shown, behind: behind(host) };
}

// events returns older events from the verifier; before is the number of events that the page does not have yet.
export const events = (before) => verifier.ask({ do: "events", before });

// eventOf asks the verifier after which of a chain's events the log had a given head. It returns
// the event's number.
export const eventOf = (head) => verifier.ask({ do: "event", head });

// Another run, laid over the one that is shown: its exported log, chosen by the reader, verified by a worker of its own.
import { el, part, whole } from "./parts.js";
import { places } from "./axes.js";
import { newWorker, savedLog, savedProgram } from "./verify.js";

const limit = 256 << 20; // bytes of a file
const other = { name: "", history: null, busy: "", failed: "" };
let worker = null, changed = () => {};

// The field stays the same when the page is drawn anew: the reader may be choosing a file.
const field = el("input", { id: "other-file", type: "file", onchange: () => { if (field.files.length) read(field.files[0]); } });

// overlay is another run's curve, as one of a chart's; nothing where none was chosen.
export function overlay(value, has = () => true) {
  if (!other.history) return [];
  const at = places(other.history);
  return [{ name: other.name, style: 4, points: other.history.rounds.map((r, i) => [at[i], r]).filter(([, r]) => has(r)).map(([x, r]) => [x, value(r)]) }];
}

function end(change) {
  if (worker) worker.terminate();
  worker = null;
  Object.assign(other, { busy: "", failed: "" }, change);
  if (!other.busy) field.value = ""; // the same file may be chosen again
  changed();
}

function tell(text) {
  other.busy = text;
  const line = document.getElementById("other-busy");
  if (line) line.textContent = text; else changed();
}

async function read(file) {
  end({ name: file.name, history: null, busy: "Reading " + file.name });
  const mine = worker = newWorker();
  const stopped = () => mine !== worker; // another file was chosen
  try {
    if (file.size > limit) throw new Error(`it has ${whole(file.size)} bytes, this page reads files of up to ${whole(limit)}`);
    let log = new Uint8Array(await file.arrayBuffer());
    if (log[0] === 0x3c) log = await savedLog(new TextDecoder().decode(log)); // a page: psyche run export --html
    const run = await verified(mine, log, await savedProgram(), file.name);
    if (stopped()) return;
    end({ name: run.status.run_id === document.getElementById("title")?.textContent ? `${run.status.run_id} of ${file.name}` : run.status.run_id, history: run.history });
  } catch (error) {
    if (!stopped()) end({ failed: `${file.name} was not laid over this run: ${error.message || error}. It has to be a file of psyche run export or psyche run archive.`, history: null });
  }
}

// verified has a worker verify a log, and returns the run.
function verified(worker, log, program, name) {
  return new Promise((done, refuse) => {
    worker.onerror = (e) => refuse(new Error(e.message || "the verifier did not start"));
    worker.onmessage = ({ data }) => {
      if (data.kind === "progress") tell(`Verifying ${name}: ${part(data.value.bytes, log.length)}`);
      else if (data.kind === "failed") refuse(new Error(data.value));
      else if (data.kind === "shown") done(JSON.parse(data.value));
      else if (data.kind === "report") data.value.verified ? worker.postMessage({ show: 0 }) : refuse(new Error(data.value.problem));
    };
    worker.postMessage({ log, program, told: {} });
  });
}

// chooser lets the reader choose the other run. Without a verifier there is none.
export function chooser(verifier, draw) {
  if (!verifier) return null;
  changed = draw;
  return [
    el("label", { for: "other-file" }, "Lay another run over this one (a file of psyche run export or psyche run archive)", field),
    other.busy ? [el("span", { id: "other-busy", role: "status" }, other.busy), el("button", { type: "button", id: "other-stop", onclick: () => end({ history: null }) }, "Stop")] : null,
    other.history ? el("button", { type: "button", id: "other-remove", onclick: () => end({ history: null }) }, "Take " + other.name + " away") : null,
    other.failed ? el("p", { class: "problem", role: "alert" }, other.failed) : null,
  ];
}

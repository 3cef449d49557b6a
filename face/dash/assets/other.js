// Draws the curves of a second run over the shown run. The reader chooses its exported log, and a
// second worker verifies it.
import { el, part, whole } from "./parts.js";
import { places } from "./axes.js";
import { newVerifier, savedLog, savedProgram } from "./check.js";

const limit = 256 << 20; // maximum size of a file in bytes
const other = { name: "", history: null, busy: "", failed: "" };
let reading = null, changed = () => {};

// The field survives a redraw of the page, because the reader may be choosing a file.
const field = el("input", { id: "other-file", type: "file", onchange: () => { if (field.files.length) read(field.files[0]); } });

// overlay returns the curve of the second run, or nothing if no run was chosen.
export function overlay(value, has = () => true) {
  if (!other.history) return [];
  const at = places(other.history);
  return [{ name: other.name, style: 4, points: other.history.rounds.map((r, i) => [at[i], r]).filter(([, r]) => has(r)).map(([x, r]) => [x, value(r)]) }];
}

function end(change) {
  if (reading) reading.stop();
  reading = null;
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
  let size = 0;
  const mine = reading = newVerifier((p) => tell(`Verifying ${file.name}: ${part(p.bytes, size)}`));
  const stopped = () => mine !== reading; // the reader chose another file
  try {
    if (file.size > limit) throw new Error(`it has ${whole(file.size)} bytes, this page reads files of up to ${whole(limit)}`);
    let log = new Uint8Array(await file.arrayBuffer());
    if (log[0] === 0x3c) log = await savedLog(new TextDecoder().decode(log)); // a page from psyche run export --html
    size = log.length;
    const report = await mine.ask({ do: "file", log, program: await savedProgram(), told: {} });
    if (!report.verified) throw new Error(report.problem);
    const run = await mine.ask({ do: "show", last: 0 });
    if (stopped()) return;
    end({ name: run.status.run_id === document.getElementById("run-id")?.textContent ? `${run.status.run_id} of ${file.name}` : run.status.run_id, history: run.history });
  } catch (error) {
    if (!stopped()) end({ failed: `${file.name} cannot be compared with this run: ${error.message || error}. Choose a file of psyche run export or psyche run archive.`, history: null });
  }
}

// chooser draws the controls for the second run. They need a verifier.
export function chooser(verifier, draw) {
  if (!verifier) return null;
  changed = draw;
  return [
    el("label", { for: "other-file" }, "Compare with another run (a file of psyche run export or psyche run archive)", field),
    other.busy ? [el("span", { id: "other-busy", role: "status" }, other.busy), el("button", { type: "button", id: "other-stop", onclick: () => end({ history: null }) }, "Stop")] : null,
    other.history ? el("button", { type: "button", id: "other-remove", onclick: () => end({ history: null }) }, "Remove " + other.name) : null,
    other.failed ? el("p", { class: "problem", role: "alert" }, other.failed) : null,
  ];
}

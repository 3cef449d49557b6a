// Runs a verifier in a worker. Jobs of check.js arrive as {id, do, …}; each job gets one answer
// with its id.
import "./wasm_exec.js";

let begun = null; // resolves once the verifier runs
let at = 0; // number of bytes fetched from a server's log

async function begin(program) {
  const go = new Go();
  const bytes = new Uint8Array(program || await (await got("verifier.wasm")).arrayBuffer());
  const { instance } = await WebAssembly.instantiate(bytes, go.importObject);
  go.run(instance);
}

// got fetches a path. It waits and retries while the server is busy.
async function got(path) {
  let answer = await fetch(path, { cache: "no-store" });
  for (let again = 0; answer.status === 429 && again < 60; again++) {
    await new Promise((go) => setTimeout(go, 1000));
    answer = await fetch(path, { cache: "no-store" });
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || "HTTP " + answer.status);
  return answer;
}

// write verifies a part of the log and reports whether it verifies. bytes is the position of its end.
function write(part, bytes) {
  const records = verifier.write(part);
  if (records >= 0) postMessage({ kind: "progress", value: { bytes, records } });
  return records >= 0;
}

const jobs = {
  // file verifies a complete log.
  file({ log, told }) {
    const piece = 1 << 18;
    for (let from = 0; from < log.length && write(log.subarray(from, from + piece), Math.min(log.length, from + piece)); from += piece);
    return JSON.parse(verifier.close(JSON.stringify(told)));
  },
  // fetch continues to fetch and verify the log of a run on the page's server, up to a number of bytes.
  async fetch({ run, bytes, told }) {
    while (at < bytes) {
      const answer = await got(`api/journal?run=${encodeURIComponent(run)}&from=${at}`);
      const part = new Uint8Array(await answer.arrayBuffer()).subarray(0, bytes - at); // the log may have grown
      at += part.length;
      if (!part.length || !write(part, at)) break;
    }
    return JSON.parse(verifier.report(JSON.stringify(told)));
  },
  show: ({ last }) => JSON.parse(verifier.show(last)),
  events: ({ before }) => JSON.parse(verifier.events(before)),
  event: ({ head }) => verifier.event(head),
};

onmessage = async ({ data: job }) => {
  try {
    begun ||= begin(job.program);
    await begun;
    postMessage({ id: job.id, kind: "done", value: await jobs[job.do](job) });
  } catch (error) {
    postMessage({ id: job.id, kind: "failed", value: String(error.message || error) });
  }
};

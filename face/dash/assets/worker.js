// Checks the log of a run, beside the page: fetches the verifier and the log, or is given both.
import "./wasm_exec.js";

const send = (kind, value) => postMessage({ kind, value });

async function begin(program) {
  const go = new Go();
  const bytes = new Uint8Array(program || await (await got("verifier.wasm")).arrayBuffer());
  const { instance } = await WebAssembly.instantiate(bytes, go.importObject);
  go.run(instance);
}

// got fetches something; a page with many readers says that it is asked again later.
async function got(path) {
  let answer = await fetch(path, { cache: "no-store" });
  for (let again = 0; answer.status === 429 && again < 60; again++) {
    await new Promise((go) => setTimeout(go, 1000));
    answer = await fetch(path, { cache: "no-store" });
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || "HTTP " + answer.status);
  return answer;
}

// parts yields the log, piece by piece.
async function* parts(job) {
  if (job.log) {
    const piece = 1 << 18;
    for (let from = 0; from < job.log.length; from += piece) yield job.log.subarray(from, from + piece);
    return;
  }
  for (let from = 0; from < job.bytes;) {
    const part = new Uint8Array(await (await got(`api/journal?run=${encodeURIComponent(job.run)}&from=${from}`)).arrayBuffer());
    if (!part.length) return;
    yield part.subarray(0, job.bytes - from); // it may have grown meanwhile
    from += part.length;
  }
}

onmessage = async ({ data: job }) => {
  try {
    if (job.show !== undefined) return send("shown", verifier.show(job.show));
    if (job.events !== undefined) return send("events", verifier.events(job.events));
    if (job.head !== undefined) return send("event", { head: job.head, event: verifier.event(job.head) });
    await begin(job.program);
    let bytes = 0;
    for await (const part of parts(job)) {
      const records = verifier.write(part);
      if (records < 0) break;
      bytes += part.length;
      send("progress", { bytes, records });
    }
    send("report", JSON.parse(verifier.close(JSON.stringify(job.told))));
  } catch (error) {
    send("failed", String(error.message || error));
  }
};

// Runs the verifier like a browser's worker: node node.js FOLDER LOG prints the result as JSON.
const fs = require("fs"), path = require("path"), zlib = require("zlib");
const [folder, file] = process.argv.slice(2);
require(path.resolve(folder, "wasm_exec.js"));

(async () => {
  const began = process.hrtime.bigint(), go = new Go();
  const { instance } = await WebAssembly.instantiate(zlib.gunzipSync(fs.readFileSync(path.join(folder, "verifier.wasm.gz"))), go.importObject);
  go.run(instance);
  const log = fs.readFileSync(file), piece = 1 << 18;
  for (let from = 0; from < log.length; from += piece) if (verifier.write(new Uint8Array(log.subarray(from, from + piece))) < 0) break;
  const report = JSON.parse(verifier.close("{}"));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  process.stdout.write(JSON.stringify({ report, shown: JSON.parse(verifier.show(0)), seconds, memory: process.memoryUsage().rss }), () => process.exit(0));
})();

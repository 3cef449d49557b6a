// Measures the npm package @huggingface/tokenizers. Usage: bench.mjs TOKENIZER TEXT ROUNDS
import { readFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const library = await import(pathToFileURL(require.resolve("@huggingface/tokenizers")).href);
const { Tokenizer } = library.Tokenizer ? library : library.default;
const [file, text, rounds] = process.argv.slice(2);
const t = new Tokenizer(JSON.parse(readFileSync(file, "utf8")), {});
const raw = readFileSync(text);
const documents = [];
for (let start = 0; start < raw.length; ) {
  let end = Math.min(start + 16384, raw.length);
  while (end < raw.length && raw[end - 1] !== 10) end++;
  documents.push(raw.subarray(start, end).toString("utf8"));
  start = end;
}
let best = Infinity;
let ids;
for (let i = 0; i < rounds; i++) {
  ids = [];
  const began = process.cpuUsage();
  for (const d of documents) for (const id of t.encode(d, { add_special_tokens: false }).ids) ids.push(id);
  const took = process.cpuUsage(began);
  best = Math.min(best, (took.user + took.system) / 1e3);
}
const hash = createHash("sha256").update(Buffer.from(Int32Array.from(ids).buffer)).digest("hex").slice(0, 16);
console.log(`npm ${(raw.length / 1e3 / best).toFixed(2)} MB/s ${ids.length} ids ${hash}`);

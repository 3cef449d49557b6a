// Compares the vectors of package tokenizer with a second implementation, the npm package
// @huggingface/tokenizers. It prints the number of strings whose ids, with and without special
// tokens, equal tokenizer/testdata/FAMILY.bin, and the first strings that differ.
//
// Usage, in a folder where the package is installed: node tokenizer_npm.mjs TESTDATA [FAMILY...]
import { readFileSync, readdirSync } from "node:fs";
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import path from "node:path";

const require = createRequire(process.cwd() + "/");
const library = await import(pathToFileURL(require.resolve("@huggingface/tokenizers")).href);
const { Tokenizer } = library.Tokenizer ? library : library.default;
const [folder, ...wanted] = process.argv.slice(2);
const read = (name) => gunzipSync(readFileSync(path.join(folder, name))).toString("utf8");
const corpus = read("corpus.jsonl.gz").split("\n").filter((line) => line).map((line) => JSON.parse(line));
const families = wanted.length ? wanted : readdirSync(folder).filter((f) => f.endsWith(".bin")).map((f) => f.slice(0, -4));

function digest(lists) {
  const hash = createHash("sha256");
  for (const ids of lists) hash.update(Buffer.from(Uint32Array.from([ids.length, ...ids]).buffer));
  return hash.digest().subarray(0, 4);
}

for (const family of families) {
  let tokenizer;
  try {
    tokenizer = new Tokenizer(JSON.parse(read(family + ".json.gz")), {});
  } catch (error) {
    console.log(`${family}: the package does not load it: ${error.message}`);
    continue;
  }
  const vectors = readFileSync(path.join(folder, family + ".bin"));
  let equal = 0;
  const others = [];
  corpus.forEach((text, i) => {
    let same = false;
    try {
      const plain = tokenizer.encode(text, { add_special_tokens: false }).ids;
      same = digest([plain, tokenizer.encode(text).ids]).equals(vectors.subarray(8 * i, 8 * i + 4));
    } catch { /* a string that the package cannot encode differs */ }
    if (same) equal++;
    else if (others.length < 3) others.push(`${i} ${JSON.stringify(text.slice(0, 40))}`);
  });
  console.log(`${family}: ${equal} of ${corpus.length} strings have the same ids${others.length ? "; not " + others.join(", ") : ""}`);
}

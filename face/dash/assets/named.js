// Compares links, hashes and keys with the run whose log was verified.

const quoted = /^(['"])(.*)\1$/;

// named returns {good, words}. good is null if the text does not identify a single run.
export function named(text, report, runID) {
  const bare = text.trim().replace(quoted, "$2");
  return report.chain ? onChain(bare, report, runID) : onServer(bare, report, runID);
}

const yes = (words) => ({ good: true, words: "It is. " + words });
const no = (words) => ({ good: false, words: "It is not: " + words });
const unclear = (words) => ({ good: null, words: "That is not enough. " + words });

function onChain(text, report, runID) {
  const c = report.chain, link = `psyche+solana://${c.program}/${encodeURIComponent(runID)}?authority=${c.began}`;
  if (text === report.run) return yes("That is the hash of this run.");
  if (text === c.account) return yes("That is the account of this run.");
  if (text.split("&")[0] === link) return yes("The link has this run's program, name and main authority.");
  return no("that names another run, or another program.");
}

function onServer(text, report, runID) {
  if (text === report.run) return yes("That is the hash of this run.");
  if (text === report.host) return unclear("It is the key of this run's host, which may have other runs as well. Paste the link or the hash of the run.");
  const link = parsed(text);
  if (!link) return no("that is neither the hash of this run nor a link to a run.");
  if (link.genesis && link.genesis !== report.run) return no("the link names another run.");
  if (link.key && link.key !== report.host) return no("the link names another host.");
  if (link.name !== runID) return no(`the link names a run that is called ${JSON.stringify(link.name)}.`);
  if (!link.genesis) return unclear("The link has the name of this run, but not its hash (genesis=…): its host may have had several runs of that name.");
  return yes(link.key ? "The link has the hash and the host's key of this run." : "The link has the hash of this run.");
}

// parsed reads a link that psyche run invite prints. It returns null for any other text.
function parsed(text) {
  const found = /^psyche:\/\/[^/?#\s]+\/([^/?#\s]+)\?([^#\s]*)$/.exec(text);
  if (!found) return null;
  const link = { name: "", key: "", genesis: "" };
  try { link.name = decodeURIComponent(found[1]); } catch { return null; }
  for (const part of found[2].split("&")) {
    const [name, ...value] = part.split("=");
    if (name !== "key" && name !== "genesis" || link[name]) return null; // clients also refuse unknown and repeated parts
    link[name] = value.join("=");
  }
  return link;
}

// joined compares the link in a command of “Take part” with the run. It returns null for any other
// command.
export function joined(command, report, runID) {
  const found = /^psyche-client join '([^'\s]+)'(?: \\\n  --(?:model-path MODEL|data-path DATA))*$/.exec(command);
  return found && named(found[1], report, runID);
}

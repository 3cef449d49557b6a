// Draws the result of a finished run: samples, a chat, the model, and commands that use the model.
import { el, key, section, whole } from "./parts.js";
import { address, copier } from "./invite.js";
import { chat, samples } from "./talk.js";
import { linkedRun } from "./verify.js";

const plain = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, repository = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}\/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

// model returns the newest recorded model: its step, digest and reported upload; null if none was recorded.
function model(data) {
  const h = data.history, c = data.status.checkpoint, newest = h && h.checkpoints.length ? h.checkpoints[0] : c.digest ? { step: c.step, digest: c.digest } : null;
  if (!newest) return null;
  const upload = data.locations.find((p) => p.reporter && p.kind === "Hub" && p.step === newest.step && p.digest === newest.digest && repository.test(p.place.split(" ")[0]));
  return { ...newest, upload };
}

// uploaded draws a place that a member reported. Every member can report any place, so no command uses it.
const uploaded = (p) => p && el("p", { class: "muted note" }, key(p.reporter), " reports that it uploaded the model to ", el("code", {}, p.place.split(" ")[0]), ". Nobody has checked this report.");

// remote draws the commands for readers without the folder. They get the model from the host or from an upload, and verify
// its digest.
function remote(data, say) {
  const link = (data.use_link || "").replaceAll("@@HOST@@", address());
  if (!/^psyche[a-z+]*:\/\/[^'\s]+$/.test(link)) return null;
  return el("div", { class: "host" }, el("p", {}, "Without that folder, with the link that the host reports:"),
    el("pre", { tabindex: 0, role: "region", "aria-label": "Commands that get the model by a link" }, el("code", { id: "use-link" }, `psyche-client generate '${link}' --prompt "Once upon a time"\npsyche-client serve-model '${link}'`)),
    el("p", { class: "buttons" }, copier("copy-use-link", "use-link", "Copy these commands", say)), linkedRun(link, data));
}

// ending draws the model's digest and the commands. say announces a message.
export function ending(data, say) {
  const m = model(data), s = data.status;
  if (!m) return section("Use the model", el("p", {}, "The members of this run recorded no model."));
  const place = plain.test(s.run_id) ? `~/.local/state/psyche/runs/${s.run_id}-*/${s.run_id}-step${m.step}` : "DIR";
  return section("Use the model", samples(data), chat(data),
    el("p", {}, "The model is a Hugging Face folder, which each member has kept. Commands for it:"),
    el("pre", { tabindex: 0, role: "region", "aria-label": "Commands that use the model" }, el("code", { id: "use" }, `psyche-client generate --model ${place} --prompt "Once upon a time"\npsyche-client serve-model --model ${place}`)),
    el("p", { class: "buttons" }, copier("copy-use", "use", "Copy the commands", say)),
    remote(data, say), uploaded(m.upload),
    el("p", { class: "muted note" }, `Digest of the model of step ${whole(m.step)}, which a quorum of members reported: `, el("code", { id: "digest" }, m.digest)));
}

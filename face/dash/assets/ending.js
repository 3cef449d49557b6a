// Draws the result of a finished run: its model, and commands that use the model.
import { el, section, whole } from "./parts.js";

const plain = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, repository = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}\/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

// model returns the newest recorded model: its step, digest and place; null if none was recorded.
function model(data) {
  const h = data.history, c = data.status.checkpoint, newest = h && h.checkpoints.length ? h.checkpoints[0] : c.digest ? { step: c.step, digest: c.digest } : null;
  if (!newest) return null;
  const upload = data.locations.find((p) => p.reporter && p.kind === "Hub" && p.step === newest.step && repository.test(p.place.split(" ")[0]));
  return { ...newest, upload: upload && upload.place.split(" ")[0] };
}

// ending draws the model's digest and the commands.
export function ending(data) {
  const m = model(data), s = data.status;
  if (!m) return section("Use the model", el("p", {}, "The members of this run recorded no model."));
  const folder = plain.test(s.run_id) ? `~/.local/state/psyche/runs/${s.run_id}-*/${s.run_id}-step${m.step}` : "DIR", place = m.upload || folder;
  return section("Use the model",
    el("p", {}, "The model is a Hugging Face folder, ", m.upload ? ["which a member uploaded to ", el("code", {}, m.upload), "."] : "which each member has kept. Talk to it:"),
    el("pre", { tabindex: 0, role: "region", "aria-label": "Commands that use the model" }, el("code", { id: "use" }, `psyche-client generate --model ${place} --prompt "Once upon a time"\npsyche-client serve-model --model ${place}`)),
    el("p", { class: "muted" }, `Digest of the model of step ${whole(m.step)}, which a quorum of members reported: `, el("code", { id: "digest" }, m.digest)));
}

// Draws the first screen: the state of a run, its progress, what is wrong, the loss, the members and six values.
import { bytes, clock, el, part, percent, short, span, sum, tile, whole } from "./parts.js";
import { ending } from "./ending.js";
import { invitation } from "./invite.js";
import { lossChart } from "./learning.js";
import { people } from "./people.js";
import { isOver, progress, silent, state } from "./progress.js";
import { banners } from "./story.js";
import { seal } from "./verify.js";

// idle returns the share of time outside RoundTrain: waiting, Warmup, RoundWitness, Cooldown.
export const idle = (spent) => { const busy = spent[3], wait = spent[1] + spent[2] + spent[4] + spent[5]; return busy + wait ? wait / (busy + wait) : NaN; };

// reading draws a run whose state is not known yet.
function reading(data) {
  const r = data.reading;
  return el("section", { class: "hero" }, el("h1", { id: "title" }, data.key), data.problem ? el("p", { class: "problem host", role: "alert" }, "The host reports that it cannot follow the log of this run: " + data.problem) : null,
    r ? el("p", {}, el("progress", { max: r.size, value: r.bytes, "aria-label": "Reading the log" }), ` The host reads and verifies its log: ${part(r.bytes, r.size)} of ${bytes(r.size)}`)
      : el("p", {}, "Its state is not known yet."));
}

function tiles(data, now) {
  const h = data.history;
  if (!h || !h.rounds.length) return null;
  const late = h.rounds.slice(-10), wall = sum(late, (r) => sum(r.w)), saved = h.checkpoints[0], stopped = isOver(data.status) || silent(data, now);
  return el("dl", { class: "tiles", id: "tiles" },
    tile("Speed", wall && !silent(data, now) ? short(sum(late, (r) => r.k) / wall * 1000) : "–", "tokens of results that counted, over the newest rounds", stopped ? "tokens/s in the last rounds" : "tokens per second"),
    tile("Trained", short(h.tokens), "tokens of results that counted", "tokens"),
    tile("A round lasts", late.length ? span(wall / sum(late, (r) => r.n)) : "–", "average of the newest rounds, including the time between rounds", "on average"),
    tile("Results that counted", late.length ? percent(sum(late, (r) => r.c) / sum(late, (r) => r.b)) : "–", "of the batches of the newest rounds; results on probation do not count", "of the newest rounds"),
    tile("Time spent training", percent(1 - idle(h.spent)), "share of the run's time in which it trained", "of the whole run"),
    tile("Newest checkpoint", saved ? `Step ${whole(saved.step)}` : "None yet", "recorded by a quorum of members", saved ? clock(saved.time, now) : "at the end of an epoch"));
}

// title draws the name of a run, or its identifier if it has no name.
function title(s) {
  return s.name ? [el("h1", { id: "title" }, el("bdi", {}, s.name)), el("p", { class: "sub muted" }, el("span", { id: "run-id", class: "key" }, s.run_id), s.description ? [" · ", el("bdi", { id: "description" }, s.description)] : null)]
    : [el("h1", { id: "title" }, el("span", { id: "run-id" }, s.run_id)), s.description ? el("p", { class: "sub muted" }, el("bdi", { id: "description" }, s.description)) : null];
}

// hero draws the first screen. page has the time now, the time of the host's last answer if it is lost, the size of the
// verifier, and functions of the page.
export function hero(host, data, page) {
  const s = data.status;
  if (!s) return [reading(data)];
  const over = s.run_state === "Finished", { tone, text } = state(data, page.now, page.lost), waits = s.run_state === "WaitingForMembers" && page.invites;
  const loss = lossChart(data, over, page.options());
  const learning = el("section", { class: "loss", "aria-labelledby": loss ? "h-loss" : null, "data-answers": waits ? null : "learning" }, loss || el("p", { class: "muted" }, "No loss yet: the curve begins with the first round."));
  const dead = page.lost || silent(data, page.now);
  return [
    el("section", { class: "hero" + (dead ? " silent" : ""), "aria-labelledby": "title" },
      el("div", { class: "head" }, el("div", {}, el("p", { id: "state", class: "state " + tone, "data-answers": "alive" }, el("span", { class: "dot", "aria-hidden": "true" }), text), title(s)),
        seal(host, data, page.size, page.last, page.now, page.changed)),
      banners(data, page.now, page.invite), progress(data, page.now)),
    el("div", { class: dead ? "stage silent" : "stage" }, waits ? invitation(data, page.say) : learning, people(data, over), waits && loss && data.history && data.history.rounds.length ? learning : over ? ending(data, page.say) : null),
    tiles(data, page.now),
  ];
}

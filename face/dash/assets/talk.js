// Draws what a finished model writes: samples of the host, and a chat with the model.
import { el, whole } from "./parts.js";
import { saved } from "./check.js";

// samples draws the texts of the first and of the last model next to each other.
export function samples(data) {
  const s = data.samples, texts = s && s.texts || [], first = texts[0], last = texts[texts.length - 1];
  if (!last) return null;
  const name = (t) => t.step ? `After ${whole(t.step)} rounds` : "Before training";
  const one = (t) => el("figure", {}, el("figcaption", {}, name(t)), el("blockquote", { dir: "auto" }, el("b", {}, s.prompt), t.text));
  return el("div", { class: "host samples", id: "samples" }, el("h3", {}, "Texts of the models"),
    el("p", { class: "muted note" }, "The host reports these texts. The bold words are given, and the model continues them."),
    el("div", { class: "pair" }, first === last ? one(last) : [one(first), one(last)]));
}

// The chat survives redraws of the page, because the reader may be typing.
const talk = { key: "", messages: [], ask: null, turns: false };
const log = el("ol", { id: "talk-log", "aria-label": "Conversation", "aria-live": "polite" });
const text = el("textarea", { id: "talk-text", rows: 2, maxlength: 1000, autocomplete: "off", onkeypress: (e) => {
  if (e.key !== "Enter" || e.shiftKey) return;
  e.preventDefault();
  form.requestSubmit();
} });
const label = el("label", { for: "talk-text" });
const send = el("button", { type: "submit", id: "talk-send", class: "main" });
const stop = el("button", { type: "button", id: "talk-stop", hidden: true, onclick: () => talk.ask && talk.ask.abort() }, "Stop");
const anew = el("button", { type: "button", id: "talk-new", hidden: true, onclick: () => { forget(); text.focus(); } }, "New conversation");
const form = el("form", { onsubmit: (e) => { e.preventDefault(); ask(); } }, label, text, el("p", { class: "buttons" }, send, stop, anew));

function forget() {
  if (talk.ask) talk.ask.abort();
  talk.messages = [];
  log.replaceChildren();
  anew.hidden = true;
}

const most = 15; // messages that the model gets

// say adds an entry to the conversation.
function say(who, kind, ...words) {
  const said = el("li", { class: kind, dir: "auto" }, el("small", {}, who), ...words);
  log.append(said);
  while (log.childElementCount > 60) log.firstChild.remove();
  said.scrollIntoView({ block: "nearest" });
  return said;
}

async function ask() {
  const question = text.value.trim(), mine = new AbortController(), key = talk.key;
  if (!question || talk.ask) return;
  const messages = talk.turns ? [...talk.messages, { role: "user", content: question }].slice(-most) : [{ role: "user", content: question }];
  talk.ask = mine;
  [send.disabled, stop.hidden, anew.hidden, text.value] = [true, false, false, ""];
  if (talk.turns) say("You", "asked", question);
  const waits = say("Model", "waits", "writing …");
  try {
    const reply = await fetch("api/talk?run=" + encodeURIComponent(key), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ messages }), signal: mine.signal });
    if (!reply.ok) throw new Error((await reply.text()).trim() || "HTTP " + reply.status);
    const answer = await reply.json();
    if (talk.turns) talk.messages = [...messages, { role: "assistant", content: answer.text }];
    if (waits.isConnected) say("Model", "said", talk.turns ? null : el("b", {}, question), answer.text, answer.cut ? " …" : "");
  } catch (error) {
    if (waits.isConnected) {
      say("Page", "failed", mine.signal.aborted ? "Stopped." : `No answer: ${error.message || error}`);
      if (!text.value.trim()) text.value = question;
    }
  }
  waits.remove();
  talk.ask = null;
  [send.disabled, stop.hidden] = [false, true];
}

// chat draws the chat, or the reason why the page has none.
export function chat(data) {
  const offer = data.talk;
  if (saved) return null;
  if (!offer) return el("p", { class: "muted note host", id: "no-talk" }, "The host reports no chat for this page. The commands below talk to the model on your machine.");
  if (!offer.ready && !(talk.key === data.key && log.childElementCount)) {
    return el("p", { class: "muted note host", id: "no-talk" }, "The host reports that its model does not answer yet. Until it does, use the commands below.");
  }
  if (talk.key !== data.key) {
    forget();
    talk.key = data.key;
  }
  talk.turns = offer.turns;
  label.textContent = offer.turns ? "Your message" : "Text that the model continues";
  send.textContent = offer.turns ? "Send" : "Continue the text";
  return el("div", { class: "host talk", id: "talk" }, el("h3", {}, "Talk to the model"),
    el("p", { class: "muted note" }, "The host reports these answers, and can read your texts. The model may write false things."), log, form);
}

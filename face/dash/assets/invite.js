// Draws the invitation: the command, the link and the QR code with which a reader joins the run.
import { bytes, el, section, tile } from "./parts.js";
import { isOver } from "./progress.js";
import { linked } from "./verify.js";

const $ = (id) => document.getElementById(id);

// joinable reports whether a page has an invitation to a run, or the reason why it has none.
export const joinable = (data) => Boolean(data.status && !isOver(data.status) && (data.join || data.join_note));

// address returns the host name under which the browser reached the page.
export const address = () => location.hostname.includes(":") ? `[${location.hostname.replace(/[[\]]/g, "")}]` : location.hostname;

// copier draws a button that copies the text of an element.
export function copier(id, of, text, say) {
  const copy = async () => {
    try { await navigator.clipboard.writeText($(of).textContent); say("Copied."); $(id).textContent = "Copied"; } catch {
      const range = document.createRange();
      range.selectNodeContents($(of));
      getSelection().removeAllRanges(); getSelection().addRange(range);
      say("Selected: press Ctrl+C.");
    }
  };
  return el("button", { type: "button", id, class: id === "copy" ? "main" : null, onclick: copy }, text);
}

// codes holds the images of QR codes by address, so that a redraw does not load them again.
const codes = new Map();

function code(data) {
  const src = `api/qr?run=${encodeURIComponent(data.key)}&host=${encodeURIComponent(address())}`;
  if (!codes.has(src)) codes.set(src, el("img", { class: "qr", alt: "QR code of the link to this run", width: 320, height: 320, src }));
  return codes.get(src);
}

// invitation draws the section with the command, the link and the QR code. say announces a message.
export function invitation(data, say) {
  const command = data.join.replaceAll("@@HOST@@", address()), n = data.join_needs, link = /'(psyche[^']*:\/\/[^']+)'/.exec(command);
  const made = section("Take part", el("div", { class: "invitation" },
    el("div", {}, data.join_note ? el("p", {}, data.join_note) : null,
      command && data.join_install ? [el("p", { class: "wide" }, "Without psyche-client, install it first. If your shell does not find the program afterwards, run ~/.local/bin/psyche-client:"),
        el("pre", { tabindex: 0, role: "region", "aria-label": "Command that installs psyche-client" }, el("code", { id: "install" }, data.join_install))] : null,
      command ? [el("p", { class: "wide" }, "Run this command on your machine, or send it to a friend:"), el("pre", { tabindex: 0, role: "region", "aria-label": "Command" }, el("code", { id: "command" }, command)),
        el("p", { class: "buttons" }, copier("copy", "command", "Copy the command", say), link ? copier("copy-link", "link", "Copy the link", say) : null),
        link ? el("p", { class: "muted note wide" }, "The link alone: ", el("code", { id: "link" }, link[1])) : null, linked(command, data)] : null),
    command && data.join_link ? code(data) : null),
  n ? el("dl", { class: "tiles", id: "needs" }, tile("Memory", bytes(n.memory), "weights, gradient, optimizer state and a model to serve to other members; for small models also a copy of the weights. The client prints the size of a batch before it joins", "at least, plus a batch"),
    tile("Disk", bytes(n.disk), "plus the checkpoint being written and the optimizer's state", "for three checkpoints"), tile("Model", bytes(n.model), null, "to get first"),
    n.result ? tile("In a round", "about " + bytes(n.result), null, "to and from each other trainer") : null) : null);
  made.classList.add("host");
  made.dataset.answers = "join";
  return made;
}

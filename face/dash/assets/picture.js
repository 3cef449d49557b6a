// Charts as images. The SVG of a chart is drawn again on a canvas, in the colours of the page.
import { download } from "./parts.js";

const scale = 2, row = 18; // pixels for each unit; height of a line of text

// shape converts an SVG element to a canvas path.
function shape(node) {
  const path = new Path2D(node.localName === "path" ? node.getAttribute("d") : undefined), n = (name) => node[name].baseVal.value;
  if (node.localName === "line") { path.moveTo(n("x1"), n("y1")); path.lineTo(n("x2"), n("y2")); }
  if (node.localName === "rect") path.rect(n("x"), n("y"), n("width"), n("height"));
  if (node.localName === "circle") path.arc(n("cx"), n("cy"), n("r"), 0, 7);
  return path;
}

function draw(to, node) {
  const style = getComputedStyle(node);
  if (style.visibility === "hidden") return;
  if (node.localName === "text") {
    to.fillStyle = style.fill;
    to.font = `${style.fontSize} ${style.fontFamily}`;
    to.textAlign = { middle: "center", end: "right" }[style.textAnchor] || "left";
    to.fillText(node.textContent, node.x.baseVal[0].value, node.y.baseVal[0].value);
    return;
  }
  const path = shape(node);
  if (style.fill !== "none") {
    to.fillStyle = style.fill;
    to.globalAlpha = parseFloat(style.fillOpacity);
    to.fill(path);
    to.globalAlpha = 1;
  }
  if (style.stroke === "none") return;
  to.strokeStyle = style.stroke;
  to.lineWidth = parseFloat(style.strokeWidth);
  to.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[ ,]+/).map(parseFloat));
  to.stroke(path);
}

// picture draws the chart of a figure with its title, the name of the run and its legend. It
// returns the canvas.
export function picture(figure, run) {
  const chart = figure.querySelector("svg.chart"), { width, height } = chart.viewBox.baseVal, legend = [...figure.querySelectorAll(".legend li")];
  const canvas = document.createElement("canvas"), to = canvas.getContext("2d");
  canvas.width = width * scale;
  canvas.height = (2 * row + 6 + height + legend.length * row + 6) * scale;
  const page = getComputedStyle(document.body), card = getComputedStyle(figure.closest("section"));
  const write = (text, x, y, bold) => { to.font = `${bold} 13px ${page.fontFamily}`; to.textAlign = "left"; to.fillStyle = page.color; to.fillText(text, x, y, width - x - 8); };
  to.scale(scale, scale);
  to.fillStyle = card.backgroundColor;
  to.fillRect(0, 0, canvas.width, canvas.height);
  write(figure.querySelector("figcaption").textContent, 8, row, "bold");
  write(run, 8, 2 * row, "");
  to.translate(0, 2 * row + 6);
  for (const node of chart.querySelectorAll("line, path, circle, rect, text")) draw(to, node);
  to.translate(8, height);
  for (const item of legend) {
    to.save();
    to.translate(0, row / 2 - 4);
    draw(to, item.querySelector("path"));
    to.restore();
    write(item.textContent, 36, row / 2 + 4, "");
    to.translate(0, row);
  }
  return canvas;
}

// savePicture lets the reader save the chart of a figure as a file.
export function savePicture(figure, title) {
  const run = document.title.replace(/ · Psyche$/, "");
  picture(figure, run).toBlob((blob) => download(blob, `${run}-${title}.png`), "image/png");
}

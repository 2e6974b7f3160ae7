"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const search = document.getElementById("search"), found = document.getElementById("found");
const table = document.getElementById("all"), body = table.tBodies[0];
const names = data.rows.map((row) => row[0]);
let sorted = { column: 0, up: true };

function show(value, column) {
  if (value === null) return "–";
  if (column === 0) return value;
  return column >= 5 ? (100 * value).toFixed(1) + " %" : value.toFixed(column === 4 ? 3 : 4);
}

function fill() {
  body.replaceChildren(...data.rows.map((row) => {
    const line = document.createElement("tr");
    line.tabIndex = 0;
    line.dataset.name = row[0];
    row.forEach((value, column) => {
      line.appendChild(document.createElement("td")).textContent = show(value, column);
    });
    return line;
  }));
}

function sortBy(column) {
  sorted = { column, up: sorted.column === column ? !sorted.up : true };
  data.rows.sort((a, b) => {
    const x = a[column], y = b[column];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = column === 0 ? x.localeCompare(y) : x - y;
    return sorted.up ? order : -order;
  });
  [...table.tHead.rows[0].cells].forEach((cell, n) => {
    cell.setAttribute("aria-sort", n !== column ? "none" : sorted.up ? "ascending" : "descending");
  });
  fill();
  mark(current);
}

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(name) {
  const s = data.series[name], width = 1000, height = 380, left = 60, bottom = 30, right = 12, top = 12;
  const gap = 4, ahead = s.fm.length, count = s.y.length + gap + ahead;
  const all = [s.y, s.fy, s.m, s.fm, ...s.b, ...s.fb].flat().filter((v) => v !== null);
  const low = Math.min(...all), high = Math.max(...all), room = (high - low || 1) * 0.04;
  const x = (n) => left + (n / Math.max(1, count - 1)) * (width - left - right);
  const y = (v) => top + (1 - (v - low + room) / (high - low + 2 * room)) * (height - top - bottom);
  const line = (values, from) => values.map((v, n) => v === null ? "" : `${x(from + n).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: values, one-step forecasts with bands, and the forecast of the last cutoff` });
  svg.appendChild(element("title", {}, name));
  for (let k = 0; k <= 4; k++) {
    const value = low + (k / 4) * (high - low);
    svg.appendChild(element("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-width": 0.6 }));
    svg.appendChild(element("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", "font-size": 12, fill: "currentColor" }, value.toPrecision(4)));
  }
  const start = s.y.length + gap;
  for (const [bounds, from] of [[s.b, 0], [s.fb, start]]) {
    for (let k = bounds.length - 2; k >= 0; k -= 2) {
      const points = line(bounds[k], from) + " " + line(bounds[k + 1], from).split(" ").reverse().join(" ");
      svg.appendChild(element("polygon", { points, fill: "var(--ours)", opacity: 0.18 }));
    }
  }
  svg.appendChild(element("polyline", { points: line(s.m, 0), fill: "none", stroke: "var(--ours)", "stroke-width": 1 }));
  svg.appendChild(element("polyline", { points: line(s.y, 0), fill: "none", stroke: "currentColor", "stroke-width": 1.3 }));
  svg.appendChild(element("polyline", { points: line(s.fm, start), fill: "none", stroke: "var(--ours)", "stroke-width": 2 }));
  svg.appendChild(element("polyline", { points: line(s.fy, start), fill: "none", stroke: "currentColor", "stroke-width": 1.3, "stroke-dasharray": "3 3" }));
  for (const n of [0, Math.floor(s.t.length / 2), s.t.length - 1]) {
    svg.appendChild(element("text", { x: x(n), y: height - 8, "text-anchor": n === 0 ? "start" : "middle", "font-size": 12, fill: "currentColor" }, s.t[n]));
  }
  const caption = document.createElement("figcaption");
  caption.textContent = `${name}: values (dark), ${data.model} one step ahead with its bands (80 and 95 %); right, the last cutoff's forecast ${ahead} steps ahead, ${s.ft[0]} to ${s.ft[ahead - 1]}, and what came (dashed).`;
  document.getElementById("fan").replaceChildren(svg, caption);
}

let current = null;
function mark(name) {
  for (const row of body.rows) row.setAttribute("aria-selected", row.dataset.name === name);
}
function pick(name) {
  current = name;
  search.value = name;
  found.textContent = "";
  draw(name);
  mark(name);
}
function look(complete) {
  const wanted = search.value.trim().toLowerCase();
  if (!wanted) return;
  const exact = names.find((name) => name.toLowerCase() === wanted);
  const starts = names.find((name) => name.toLowerCase().startsWith(wanted));
  const match = exact || (complete ? starts : undefined);
  if (match) pick(match);
  else found.textContent = starts ? "" : "No such series";
}

const head = table.tHead.insertRow();
data.columns.forEach((name, column) => {
  const cell = document.createElement("th"), button = document.createElement("button");
  cell.scope = "col";
  button.type = "button";
  button.textContent = name;
  button.addEventListener("click", () => sortBy(column));
  cell.appendChild(button);
  head.appendChild(cell);
});
document.getElementById("names").replaceChildren(...names.map((name) => new Option(name, name)));
search.addEventListener("input", () => look(false));
search.addEventListener("keydown", (event) => { if (event.key === "Enter") look(true); });
body.addEventListener("click", (event) => pick(event.target.closest("tr").dataset.name));
body.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  pick(event.target.closest("tr").dataset.name);
});
for (const button of document.querySelectorAll("[data-rank]")) {
  button.addEventListener("click", () => {
    const ranked = data.rows.filter((row) => row[2] !== null).sort((a, b) => a[2] - b[2]);
    pick(ranked[Math.round(button.dataset.rank * (ranked.length - 1))][0]);
  });
}
sortBy(2);
document.querySelector("[data-rank='0.5']").click();

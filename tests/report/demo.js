"use strict";
// One figure of each kind, and a table, of the numbers in the page.
const data = JSON.parse(document.getElementById("data").textContent);
const box = (name) => document.getElementById(name);
const { x, y, ids } = data, low = y.map((v) => v - 1), high = y.map((v) => v + 1);
let picked = null;
const pick = (id) => { picked = id; };
const t = x.map((v) => 1420070400 + 86400 * v);
const lines = charts.draw(box("lines"), { label: "Values by day, with a band and two fans", follow: true, x: { time: true }, y: { label: "value" }, layers: [
  { kind: "band", name: "band", x: t, low, high, colour: "--c1" },
  { kind: "fans", name: "fans", fans: [0, 3].map((n) => ({ x: t.slice(n, n + 3), low: low.slice(n, n + 3), high: high.slice(n, n + 3) })), colour: "--c2" },
  { kind: "line", name: "values", x: t, y, colour: "--c1" }, { kind: "line", name: "gaps", x: t, y: y.map((v, n) => n % 3 ? v : null), colour: "--c3", dash: [4, 3] },
] });
charts.draw(box("steps"), { label: "Shares of values below", x: { label: "value" }, y: { format: "share" }, layers: [{ kind: "steps", name: "shares", ...charts.ecdf(y), colour: "--c1" }] });
charts.draw(box("points"), { label: "Points, one a series", pick, x: { label: "x" }, y: { label: "y" }, layers: [{ kind: "rule", diagonal: true }, { kind: "points", x, y, ids, colour: "--c1" }] });
charts.draw(box("intervals"), { label: "Intervals, one a series", pick, x: { label: "rank" }, y: { format: "change" }, layers: [{ kind: "rule", y: 0 }, { kind: "intervals", x, y, low, high, ids, colour: "--c1" }] });
charts.draw(box("bars"), { label: "Bars between edges", x: { range: [0, 1] }, layers: [{ kind: "bars", from: [0, 0.1, 0.5], to: [0.1, 0.5, 1], y: [1, 2, 1.5], colour: "--c1" }] });
seriesTable(box("table"), { caption: "All series", pick, sort: { key: "y", up: true }, chosen: ["id", "y"], columns: [
  { key: "id", label: "series", text: true }, { key: "y", label: "value", format: charts.formats.number }, { key: "x", label: "rank" },
], rows: ids.map((id, n) => ({ id, values: { id, x: x[n], y: n === 2 ? null : y[n] } })) });
numbersBelow(box("lines-numbers"), () => ({ caption: "Values", head: ["x", "y"], rows: x.map((v, n) => [v, y[n]]) }));

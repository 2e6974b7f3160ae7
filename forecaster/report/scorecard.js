"use strict";
// The page that scores past forecasts: its figures and its table.
const data = JSON.parse(document.getElementById("data").textContent);
const { made, formats, day } = charts;
const box = (name) => document.getElementById(name);
const time = (value) => data.dated ? day(value) : String(value);
const none = (value) => value === null || value === undefined;
const share = (value) => none(value) ? "" : formats.share(value, 0.001);
const three = (value) => none(value) ? "" : formats.number(value, 0.001);
const whole = (value) => String(value);

// When and how far -------------------------------------------------------------------------------------
const scores = [["crps", "CRPS", "--c1", []], ["mae", "absolute error", "--c2", [7, 4]]];
function drawOrigins() {
  const { by, outcomes } = data.origins, ids = by.map((v, n) => `made from ${time(v)}: ${outcomes[n]} outcomes`);
  const layers = scores.filter(([key]) => data.origins[key].some((v) => v !== null))
    .flatMap(([key, name, colour, dash]) => [{ kind: "line", name, x: by, y: data.origins[key], colour, dash, width: 2 }, { kind: "points", x: by, y: data.origins[key], ids, colour, size: 6, key: name }]);
  charts.draw(box("by-origin"), {
    label: `Errors relative to those of "unchanged" by the day of the forecast, ${by.length} days`, flat: true,
    x: { time: data.dated && by.length > 1, label: data.dated ? "" : "origin", format: time }, y: { label: "\u201cunchanged\u201d = 1" }, layers: [{ kind: "rule", y: 1 }, ...layers],
    tip: (hit) => [hit.id, `${hit.layer.key}: ${three(hit.y)}`],
  });
  numbersBelow(box("by-origin-numbers"), () => ({ caption: "By the day they were made", head: ["made from", "outcomes", ...data.levels.map((level) => `${level} % coverage`), ...scores.map(([, name]) => name)],
    rows: by.map((v, n) => [time(v), outcomes[n], ...data.levels.map((level) => share(data.origins[`held-${level}`][n])), ...scores.map(([key]) => three(data.origins[key][n]))]) }));
}
function drawSteps() {
  const { by, outcomes } = data.steps, hues = ["--c1", "--c2", "--c4", "--c5", "--c6", "--c7", "--c8"];
  const layers = data.levels.flatMap((level, n) => [
    { kind: "rule", y: Number(level) / 100, colour: hues[n % 7], dash: [3, 3] },
    { kind: "line", name: `band of ${level} %`, x: by, y: data.steps[`held-${level}`], colour: hues[n % 7], width: 2, dash: [[], [7, 3], [2, 3], [9, 3, 2, 3]][n % 4] },
    { kind: "points", x: by, y: data.steps[`held-${level}`], ids: by.map((v, k) => `${v} ahead: ${outcomes[k]} outcomes`), colour: hues[n % 7], size: 6, key: level },
  ]);
  charts.draw(box("by-step"), {
    label: `Shares of outcomes that bands covered, 1 to ${by[by.length - 1]} steps ahead`, flat: true,
    x: { label: "steps ahead", format: (v) => Number.isInteger(v) ? String(v) : "", room: 0.04 }, y: { label: "covered", format: "share" }, layers,
    tip: (hit) => [hit.id, `band of ${hit.layer.key} %: ${share(hit.y)}`],
  });
  numbersBelow(box("by-step-numbers"), () => ({ caption: "By steps ahead", head: ["steps", "outcomes", ...data.levels.map((level) => `${level} % coverage`)],
    rows: by.map((v, n) => [v, outcomes[n], ...data.levels.map((level) => share(data.steps[`held-${level}`][n]))]) }));
}

// Every series -----------------------------------------------------------------------------------------
const ids = data.table.id;
const table = seriesTable(box("table"), {
  caption: "Forecasts of every series and their outcomes", sort: { key: "crps", up: true }, pick: open,
  columns: [{ key: "id", label: "series", text: true }, { key: "outcomes", label: "outcomes", format: whole }, { key: "open", label: "open", format: whole },
    ...data.levels.map((level) => ({ key: `held-${level}`, label: `${level} % coverage`, format: share })), { key: "crps", label: "CRPS, \u201cunchanged\u201d = 1", format: three }, { key: "mae", label: "abs. error", format: three }, { key: "forecasts", label: "forecasts", format: whole }],
  rows: ids.map((id, n) => ({ id, values: Object.fromEntries(Object.keys(data.table).map((key) => [key, data.table[key][n]])) })),
});

// One series -------------------------------------------------------------------------------------------
function open(id) {
  drawOne(id);
  box("series").scrollIntoView();
  box("one").focus({ preventScroll: true });
}
function drawOne(id) {
  table.mark(id);
  const s = data.series[id], heading = made("h3", "", id);
  if (!s.from.length) return box("one").replaceChildren(heading, made("p", "note", "Its forecasts cannot be compared: see above."));
  const [low, high] = s.range, [value, y, median, ...bounds] = s.parts.map((text) => charts.unpack(text, low, high, 3));
  const fans = [], came = new Map();
  let from = 0;
  s.from.forEach((origin, n) => {
    const end = from + s.steps[n], cut = (part) => part.slice(from, end), start = value[from];
    fans.push({ x: [origin, ...cut(s.ds)], parts: [median, ...bounds].map((part) => [start, ...cut(part)]) });
    came.set(origin, start);
    for (let k = from; k < end; k++) if (y[k] !== null) came.set(s.ds[k], y[k]);
    from = end;
  });
  const t = [...came.keys()].sort((a, b) => a - b), layers = [];
  [...data.levels].reverse().forEach((level, k) => {
    const usable = fans.filter((fan) => !none(fan.parts[1 + 2 * k][1]));
    layers.push({ kind: "fans", name: `${level} % band`, colour: "--c1", opacity: k ? 0.22 : 0.12, fans: usable.map((fan) => ({ x: fan.x, low: fan.parts[1 + 2 * k], high: fan.parts[2 + 2 * k] })) });
  });
  layers.push({ kind: "paths", name: "forecast, median", colour: "--c1", dash: [3, 3], width: 1.3, fans: fans.map((fan) => ({ x: fan.x, y: fan.parts[0] })) });
  layers.push({ kind: "line", name: "outcomes", x: t, y: t.map((v) => came.get(v)), colour: "--ink", width: 1.6 });
  const figure = made("figure"), caption = made("figcaption"), drawn = made("div"), details = made("details");
  caption.append(made("p", "", `The latest ${fans.length === 1 ? "forecast" : `${fans.length} forecasts`}, each with its bands, and the outcomes, in the units of the latest: splits and dividends are allowed for.`));
  details.append(made("summary", "", "The numbers"));
  numbersBelow(details, () => ({ caption: `Forecasts of ${id}`, head: ["made from", "for", "median", "came", ...[...data.levels].reverse().flatMap((level) => [`${level} %, low`, "high"])],
    rows: s.from.flatMap((origin, n) => { const first = s.steps.slice(0, n).reduce((a, b) => a + b, 0); return s.ds.slice(first, first + s.steps[n]).map((v, k) => [time(origin), time(v), ...[median, y, ...bounds].map((part) => none(part[first + k]) ? "" : formats.number(part[first + k]))]); }) }));
  figure.append(caption, drawn, details);
  box("one").replaceChildren(heading, figure);
  charts.draw(drawn, { label: `${id}: ${fans.length} forecasts with their bands, and the outcomes`, height: (width) => Math.max(240, Math.min(420, 0.45 * width)), x: { time: data.dated, label: data.dated ? "" : "time" }, y: {}, layers, follow: true });
}
if (data.origins.by) {
  drawOrigins();
  drawSteps();
}
drawOne(ids[0]);

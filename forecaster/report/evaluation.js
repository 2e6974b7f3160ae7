"use strict";
// The page of an evaluation: its controls, and the figures and tables that depend on them.
const data = JSON.parse(document.getElementById("data").textContent);
const { made, formats } = charts;
const ours = data.model, others = data.models.filter((name) => name !== ours);
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [5, 2], [9, 5], [3, 6], [12, 3, 3, 3, 3, 3]];
const colour = (name) => `--c${data.slots[name]}`;
const dash = (name) => DASHES[data.slots[name] - 1];
const box = (name) => document.getElementById(name);
const NAMES = { crps: "CRPS", mae: "Absolute error" };
const UNITS = { relative: "relative to \u201cunchanged\u201d", volatility: "in volatilities of the series" };
const state = { score: data.scores[0], horizon: String(data.horizons[0]), measure: "relative", rival: data.rival, series: null };

const horizonName = (horizon) => horizon === "0" ? "all horizons" : horizon === "1" ? "1 step ahead" : `${horizon} steps ahead`;
const measured = (name, measure = state.measure) => data.measured[measure][state.score][state.horizon][name] || [];
const known = (values) => values.filter((v) => v !== null);
const what = () => `${NAMES[state.score]}, ${UNITS[state.measure]}, ${horizonName(state.horizon)}`;
const three = (value) => value === null || value === undefined ? "" : formats.number(value, 0.001);
const share = (value) => value === null || value === undefined ? "" : formats.share(value, 0.001);
const figures = {};
function show(name, spec) {
  if (figures[name]) figures[name].update(spec);
  else figures[name] = charts.draw(box(name), spec);
}
function select(label, options, chosen, change) {
  const outer = made("label", "", `${label} `), list = made("select");
  for (const [value, text] of options) list.append(new Option(text, value, false, value === chosen));
  list.addEventListener("change", () => change(list.value));
  outer.append(list);
  return { outer, list };
}

// Errors of every series ---------------------------------------------------------------------------
// A few far outliers would squeeze all others together: they are named, and shown on demand.
let everything = false;
function limits(columns) {
  const all = known(columns.flat()), q = (p) => charts.quantile(all, p);
  const low = Math.min(...all), high = Math.max(...all), room = 4 * (q(0.9) - q(0.1));
  const far = everything ? [low, high] : [Math.max(low, q(0.5) - room), Math.min(high, q(0.5) + room)];
  const more = 0.03 * (far[1] - far[0] || 1);
  return [far[0] - more, far[1] + more];
}
function beyond(columns, range) {
  return columns.flatMap(([name, values]) => values.map((v, n) => [name, data.ids[n], v])
    .filter(([, , v]) => v !== null && (v < range[0] || v > range[1])));
}
function strips(name, rows, range, label) {
  // rows: [text, colour, values, ids]; points are shifted by their order, so that none hides another
  const layers = [{ kind: "rule", x: state.measure === "relative" ? 1 : 0, dash: [3, 3] }];
  rows.forEach(([text, hue, values, ids], row) => {
    const usable = values.map((v, n) => [v, ids[n]]).filter(([v]) => v !== null).sort((a, b) => a[0] - b[0]);
    if (!usable.length) return;
    const q = (p) => charts.quantile(usable.map(([v]) => v), p);
    layers.push({ kind: "points", colour: hue, size: usable.length > 150 ? 3.5 : 5, opacity: 0.6, row: text, ids: usable.map(([, id]) => id),
      x: usable.map(([v]) => v), y: usable.map((_, n) => row + 0.12 - 0.46 * ((n * 0.618034) % 1)) });
    layers.push({ kind: "box", colour: hue, row: row + 0.27, low: q(0.25), middle: q(0.5), high: q(0.75) });
  });
  show(name, {
    label: `${label}: ${rows.map(([text, , values]) => `${text} median ${three(charts.quantile(values, 0.5))}`).join("; ")}`,
    x: { label: what(), range }, y: { names: rows.map(([text]) => text), range: [-0.6, rows.length - 0.4] },
    height: 60 + 46 * Math.max(2, rows.length), layers, pick: open,
    tip: (hit) => [hit.id, `${hit.layer.row}: ${three(hit.x)}`],
  });
}
function drawErrors() {
  const columns = data.models.map((name) => [name, measured(name)]).filter(([, v]) => known(v).length);
  const range = limits(columns.map(([, v]) => v)), out = beyond(columns, range);
  strips("strips", columns.map(([name, v]) => [name, colour(name), v, data.ids]), range, what());
  show("ecdf", {
    label: `Shares of series below an error, ${what()}`, height: 60 + 46 * Math.max(4, columns.length), x: { label: what(), range },
    y: { label: "share of series below", format: "share", range: [0, 1.02] },
    layers: [{ kind: "rule", x: state.measure === "relative" ? 1 : 0, dash: [3, 3] },
      ...columns.map(([name, v]) => ({ kind: "steps", name, ...charts.ecdf(v), colour: colour(name), dash: dash(name), width: name === ours ? 2.4 : 1.8 }))],
  });
  const note = box("errors-note");
  note.replaceChildren();
  const shown = known(measured(ours)).length;
  if (shown < data.ids.length) note.append(`${ours}: ${shown} of ${data.ids.length} series; on the others an error of \u201cunchanged\u201d is zero. `);
  if (out.length) {
    note.append(`Beyond the edges: ${out.slice(0, 6).map(([name, id, v]) => `${id} (${name}, ${three(v)})`).join(", ")}${out.length > 6 ? ` and ${out.length - 6} more` : ""}. `);
  }
  if (out.length || everything) {
    const button = made("button", "reset", everything ? "Look closer at the middle" : "Show all of them");
    button.type = "button";
    button.addEventListener("click", () => { everything = !everything; drawErrors(); });
    note.append(button);
  }
}
const perSeries = () => ({ caption: what(), head: ["series", ...data.models], rows: data.ids.map((id, n) => [id, ...data.models.map((name) => three(measured(name)[n]))]) });

// Against another model ----------------------------------------------------------------------------
function pairRows() {
  const { difference, half, sure } = data.compared[state.score][state.horizon][state.rival];
  return data.ids.map((id, n) => ({ id, n, difference: difference[n], half: half[n], sure: sure[n] === "1" }))
    .filter((row) => row.difference !== null).sort((a, b) => a.difference - b.difference);
}
function drawPairs() {
  const rows = pairRows(), better = rows.filter((row) => row.difference < 0), sure = (list) => list.filter((row) => row.sure).length;
  const tested = rows.some((row) => row.half !== null), surely = (count) => tested ? ` (significantly on ${count})` : "";
  const middle = charts.quantile(rows.map((row) => row.difference), 0.5);
  box("pairs-note").textContent = `${NAMES[state.score]}, ${horizonName(state.horizon)}: ${ours} is better than ${state.rival} on ${better.length} of ${rows.length} series`
    + `${surely(sure(better))}, worse on ${rows.filter((row) => row.difference > 0).length}${surely(sure(rows) - sure(better))}; the median difference is ${middle === null ? "unknown" : formats.change(middle, 0.0001)}.${tested ? "" : " There are no tests and no intervals."}${rows.length < data.ids.length ? ` The other ${data.ids.length - rows.length} series are not here: an error of ${state.rival} is zero or missing.` : ""}`;
  const part = (chosen, name, hue) => {
    const of = rows.map((row, rank) => ({ ...row, rank: rank + 1 })).filter(chosen), bound = (sign) => of.map((row) => row.half === null ? null : row.difference + sign * row.half);
    return { kind: "intervals", name, colour: hue, ids: of.map((row) => row.id), halves: of.map((row) => row.half),
      x: of.map((row) => row.rank), y: of.map((row) => row.difference), low: bound(-1), high: bound(1) };
  };
  const parts = [part((row) => !row.sure, "not significant", "--c3"), part((row) => row.sure && row.difference < 0, "significantly better", "--c1"), part((row) => row.sure && row.difference > 0, "significantly worse", "--c2")];
  show("forest", {
    label: box("pairs-note").textContent, pick: open, x: { label: "series, sorted", range: [0, rows.length + 1], format: (v) => Number.isInteger(v) ? String(v) : "" },
    y: { label: `difference to ${state.rival}`, format: "change" },
    layers: [{ kind: "rule", y: 0 }, ...parts.filter((layer) => layer.x.length)], legend: true,
    tip: (hit) => [hit.id, formats.change(hit.y, 0.0001) + (hit.layer.halves[hit.n] === null ? "" : ` \u00b1 ${formats.share(hit.layer.halves[hit.n], 0.0001)}`), hit.layer.name],
  });
  const mine = measured(ours), theirs = measured(state.rival);
  const points = (chosen, extra) => {
    const of = rows.filter((row) => chosen(row) && mine[row.n] !== null && theirs[row.n] !== null);
    return { kind: "points", ids: of.map((row) => row.id), x: of.map((row) => theirs[row.n]), y: of.map((row) => mine[row.n]), size: 6, ...extra };
  };
  const layers = [points((row) => !row.sure, { name: "not significant", colour: "--c3", hollow: true }), points((row) => row.sure && row.difference < 0, { name: "significantly better", colour: "--c1" }),
    points((row) => row.sure && row.difference > 0, { name: "significantly worse", colour: "--c2" })].filter((layer) => layer.x.length);
  const both = charts.extent(layers.map((layer) => ({ kind: "points", x: [...layer.x, ...layer.y], y: [] })), "x", 0.04);
  show("scatter", {
    label: `${what()}: ${ours} against ${state.rival}, a point for each of ${rows.length} series`, pick: open, legend: true,
    x: { label: `${state.rival}: ${what()}`, range: both }, y: { label: ours, range: both },
    layers: [{ kind: "rule", diagonal: true }, ...layers],
    tip: (hit) => [hit.id, `${ours}: ${three(hit.y)}`, `${state.rival}: ${three(hit.x)}`],
  });
}
const pairNumbers = () => ({
  caption: `Differences to ${state.rival}`, head: ["series", "difference", "\u00b1", "significant", ours, state.rival],
  rows: pairRows().map((row) => [row.id, formats.change(row.difference, 0.0001), row.half === null ? "" : formats.share(row.half, 0.0001), row.sure ? "yes" : "", three(measured(ours)[row.n]), three(measured(state.rival)[row.n])]),
});

// Bands, and where errors are ------------------------------------------------------------------------
function lines(name, columns, x, y, extra = []) {
  const layers = Object.entries(columns).map(([model, part]) => ({ kind: "line", name: model, ...part, colour: colour(model), dash: dash(model), width: model === ours ? 2.4 : 1.6, rank: data.models.indexOf(model) }));
  show(name, { label: `${y.label}, by ${x.label || "date"}, for ${Object.keys(columns).join(", ")}`, x, y, layers: [...extra, ...layers.reverse()], flat: true });
  numbers[name] = () => {
    const own = Object.entries(columns), first = own[0] ? own[0][1].x : [];
    const text = (v) => x.time ? charts.day(v) : formatted(x, v);
    return { caption: y.label, head: [x.label || "date", ...own.map(([model]) => model)], rows: first.map((v, n) => [text(v), ...own.map(([, part]) => part.y[n] === null ? "" : formatted(y, part.y[n]))]) };
  };
}
const formatted = (axis, value) => axis.format === "share" ? share(value) : axis.format === "change" ? formats.change(value, 0.001) : Number.isInteger(value) ? String(value) : three(value);
const numbers = {};
function drawBands() {
  const held = data.coverage[state.horizon], off = {}, wide = {};
  for (const [name, part] of Object.entries(held)) off[name] = { x: part.level, y: part.held.map((v, n) => v === null ? null : v - part.level[n]) };
  for (const [name, part] of Object.entries(data.widths)) wide[name] = { x: part.level, y: part.width };
  lines("coverage", off, { label: `what the band says, ${horizonName(state.horizon)}`, format: "share" }, { label: "coverage, less nominal", format: "change" }, [{ kind: "rule", y: 0 }]);
  lines("widths", wide, { label: "what the band says", format: "share" }, { label: "median width one step ahead, in volatilities" });
  drawPit("pit", data.pit.models, (part) => part.all, "");
}
function bars(counts) {
  const edges = data.pit.edges, total = counts.reduce((a, b) => a + b, 0);
  return { from: edges.slice(0, -1), to: edges.slice(1), y: counts.map((v, n) => total ? v / total / (edges[n + 1] - edges[n]) : 0) };
}
function drawPit(name, parts, counts, of) {
  const rival = parts[state.rival] ? state.rival : null;
  const layers = parts[ours] ? [{ kind: "bars", name: ours, ...bars(counts(parts[ours])), colour: colour(ours), opacity: 0.6 }] : [];
  if (rival) {
    const other = bars(counts(parts[rival]));
    layers.push({ kind: "steps", name: rival, x: [...other.from, 1], y: [...other.y, other.y[other.y.length - 1]], colour: colour(rival), dash: dash(rival), width: 2 });
  }
  const spec = { label: `Histogram of the probability integral transform${of}, ${ours}${rival ? ` and ${rival}` : ""}`, flat: true,
    x: { label: "quantile of the forecast distribution", range: [0, 1], format: "share" }, y: { label: "density (1: calibrated)" }, layers: [...layers, { kind: "rule", y: 1 }] };
  numbers[name] = () => ({ caption: spec.label, head: ["from", "to", ours, ...(rival ? [rival] : [])],
    rows: layers.length ? layers[0].from.map((v, n) => [share(v), share(layers[0].to[n]), ...layers.map((layer) => three(layer.y[n]))]) : [] });
  return name === "pit" ? show(name, spec) : spec;
}
function drawWhere() {
  const { horizon, ...rest } = data.where[state.score], y = { label: `${NAMES[state.score]}, \u201cunchanged\u201d = 1` };
  const columns = (table) => Object.fromEntries(data.models.filter((name) => name !== "Naive" && table && table[name] && known(table[name]).length && !(table.whole && data.sampled === name))
    .map((name) => [name, { x: table.x, y: table[name] }]));
  // PyTorch's sample of the series is not comparable with all series, day by day.
  const date = { ...rest.date, whole: true }, decile = rest.decile && { ...rest.decile, whole: true };
  const one = [{ kind: "rule", y: 1 }];
  lines("by-horizon", columns(horizon), { label: "steps ahead", format: (v) => Number.isInteger(v) ? String(v) : "", room: 0.04 }, y, one);
  lines("by-date", columns(date), data.dated ? { time: true } : { label: "cutoff" }, y, one);
  if (decile) lines("by-volatility", columns(decile), { label: "volatility, from the calmest", format: (v) => Number.isInteger(v) ? String(v) : "" }, y, one);
  else box("by-volatility").textContent = "There are too few series.";
}

// Groups ---------------------------------------------------------------------------------------------
function drawGroups() {
  if (!data.groups) return;
  const names = [...new Set(data.byGroup.group)], values = measured(ours);
  const rows = names.map((group) => {
    const of = data.ids.map((_, n) => n).filter((n) => data.groups[n] === group);
    return [group, "--c1", of.map((n) => values[n]), of.map((n) => data.ids[n])];
  });
  strips("strips-groups", rows, limits([values]), `${ours}, ${what()}, by group`);
}
function groupTable() {
  if (!data.groups) return;
  const table = data.byGroup, rows = new Map();
  table.group.forEach((group, n) => {
    const row = rows.get(group) || rows.set(group, { id: group, values: { id: group, series: 0 } }).get(group), model = table.model[n];
    row.values[model] = table[data.scores[0]][n];
    if (model === ours) Object.assign(row.values, { series: table.series[n], held: table["coverage-80"] ? table["coverage-80"][n] : null });
    if (model === data.rival) Object.assign(row.values, { better: table.better[n] });
  });
  seriesTable(box("group-table"), { caption: `${NAMES[data.scores[0]]} by group, \u201cunchanged\u201d = 1, all horizons`, name: "groups", rows: [...rows.values()], sort: { key: ours, up: true },
    columns: [{ key: "id", label: "group", text: true }, { key: "series", label: "series" }, ...data.models.filter((name) => name !== "Naive").map((name) => ({ key: name, label: name, format: three })),
      { key: "held", label: "80 % coverage", format: share }, { key: "better", label: `better than ${data.rival}`, format: share }] });
}

// Every series ---------------------------------------------------------------------------------------
let table = null;
function seriesColumns() {
  const columns = [{ key: "id", label: "series", text: true }];
  if (data.groups) columns.push({ key: "group", label: "group", text: true });
  if (data.rungs) columns.push({ key: "rung", label: "forecast by", text: true, hint: "What the forecasts rest on, at the latest cutoff" });
  for (const name of data.models) columns.push({ key: `m:${name}`, label: name, format: three, hint: what() });
  for (const name of others) if (data.compared[state.score][state.horizon][name]) columns.push({ key: `d:${name}`, label: `against ${name}`, format: (v) => formats.change(v, 0.0001), hint: `Difference to ${name}, as a share of its error` });
  for (const [level, held] of Object.entries(data.held)) for (const name of data.models) if (held[name]) columns.push({ key: `h${level}:${name}`, label: `${name}: ${level} % holds`, format: share, hint: "Share of outcomes in the band, all horizons" });
  return columns;
}
function seriesRows() {
  return data.ids.map((id, n) => {
    const values = { id, group: data.groups && data.groups[n], rung: data.rungs && data.rungs[n] };
    for (const name of data.models) values[`m:${name}`] = measured(name)[n] ?? null;
    for (const name of others) values[`d:${name}`] = data.compared[state.score][state.horizon][name]?.difference[n] ?? null;
    for (const [level, held] of Object.entries(data.held)) for (const name of data.models) values[`h${level}:${name}`] = held[name]?.[n] ?? null;
    return { id, values };
  });
}
function drawTable() {
  if (table) {
    table.columns(seriesColumns());
    table.rows(seriesRows());
    return;
  }
  const chosen = ["id", ...(data.groups ? ["group"] : []), ...(data.rungs ? ["rung"] : []), ...data.models.map((name) => `m:${name}`), ...(data.rival ? [`d:${data.rival}`] : []), ...Object.keys(data.held).slice(0, 1).map((level) => `h${level}:${ours}`)];
  table = seriesTable(box("table"), { caption: "Errors of every series by model", columns: seriesColumns(), rows: seriesRows(), pick: open, sort: { key: `m:${ours}`, up: true }, chosen });
}

// One series -------------------------------------------------------------------------------------------
function unpacked(id) {
  const s = data.series[id], [low, high] = s.range, y = charts.unpack(s.y, low, high, 3);
  const at = Array.isArray(s.at) ? s.at : y.map((_, n) => s.at + n), t = at.map((n) => data.times[n]);
  const bounds = s.fans.map((text) => charts.unpack(text, low, high, 2)), fans = [];
  let from = 0;
  s.from.forEach((origin, n) => {
    const count = s.steps[n], x = t.slice(origin, origin + count + 1);
    fans.push({ x, parts: bounds.map((part) => [y[origin], ...part.slice(from, from + count)]) });
    from += count;
  });
  return { t, y, fans, worst: s.worst };
}
function open(id) {
  showSeries(id);
  box("series").scrollIntoView();
  box("one").focus({ preventScroll: true });
}
function showSeries(id) {
  state.series = id;
  table.mark(id);
  const n = data.ids.indexOf(id), { t, y, fans, worst } = unpacked(id), dated = data.dated;
  const heading = made("h3", "", id), lead = made("p", "note"), panels = made("div", "panels"), where = made("figure"), pit = made("figure");
  const scores = data.models.filter((name) => measured(name)[n] !== null && measured(name)[n] !== undefined).map((name) => `${name} ${three(measured(name)[n])}`);
  lead.textContent = `${data.groups ? `${data.groups[n]}. ` : ""}${data.rungs ? `Forecast by ${data.rungs[n]}. ` : ""}${what()}: ${scores.join(", ")}.`;
  const text = made("p", "", `The value and, from every ${data.horizon === 1 ? "cutoff" : `${data.horizon}th cutoff`}, the forecast and its bands${data.levels.length ? ` of ${data.levels.join(" and ")} %` : ""} up to ${data.horizon} ${data.horizon === 1 ? "step" : "steps"} ahead.`);
  where.append(Object.assign(made("figcaption"), {}), made("div"), details(() => ({ caption: `Values of ${id}`, head: ["time", "value"], rows: t.map((v, k) => [dated ? charts.day(v) : v, formats.number(y[k])]) })));
  where.firstChild.append(made("h3", "", "Forecasts over time"), text);
  pit.append(made("figcaption"), made("div"));
  pit.firstChild.append(made("h3", "", "Where outcomes fell"), made("p", "", "As above, of this series alone: bars at 1 say calibrated."));
  panels.append(pit, worstDays(id, worst));
  box("one").replaceChildren(heading, lead, where, panels);
  const layers = [], wide = data.levels.length;
  for (let k = 0; k < wide; k++) layers.push({ kind: "fans", name: `${data.levels[wide - 1 - k]} % band`, colour: "--c1", opacity: k ? 0.3 : 0.16, fans: fans.map((fan) => ({ x: fan.x, low: fan.parts[1 + 2 * k], high: fan.parts[2 + 2 * k] })) });
  layers.push({ kind: "paths", name: `${ours}, forecast`, fans: fans.map((fan) => ({ x: fan.x, y: fan.parts[0] })), colour: "--c1", dash: [3, 3], width: 1.3 }, { kind: "line", name: "value", x: t, y, colour: "--ink", width: 1.5 });
  charts.draw(where.children[1], { label: `${id}: values from ${dated ? charts.day(t[0]) : t[0]} to ${dated ? charts.day(t[t.length - 1]) : t[t.length - 1]}, and forecasts with their bands`, height: (width) => Math.max(240, Math.min(420, 0.45 * width)), x: { time: dated, label: dated ? "" : "time" }, y: {}, layers, follow: true });
  const parts = Object.fromEntries(Object.entries(data.pit.models).map(([name, part]) => [name, { all: charts.unpack(part.each[n], 0, 4094, 2) }]).filter(([, part]) => part.all.some((v) => v > 0)));
  charts.draw(pit.children[1], drawPit("one-pit", parts, (part) => part.all, ` of ${id}`));
  pit.append(details(() => numbers["one-pit"]()));
}
function details(make) {
  const outer = made("details");
  outer.append(made("summary", "", "The numbers"));
  numbersBelow(outer, make);
  return outer;
}
function worstDays(id, worst) {
  const outer = made("figure"), caption = made("figcaption"), scroll = made("div", "scroll"), list = made("table"), head = list.createTHead().insertRow(), body = list.createTBody();
  caption.append(made("h3", "", "Worst days"), made("p", "", "The largest errors one step ahead, in volatilities of the series."));
  const band = data.levels.length ? [`band of ${data.levels[data.levels.length - 1]} %`] : [];
  for (const title of ["day", "before", "came", "forecast", ...band, "error"]) head.append(Object.assign(made("th", title === "day" ? "text" : "", title), { scope: "col" }));
  for (const [at, before, came, forecast, ...rest] of worst) {
    const row = body.insertRow(), error = rest[rest.length - 1], value = (v) => v === null ? "" : formats.number(v);
    const cells = [data.dated ? charts.day(data.times[at]) : data.times[at], value(before), value(came), value(forecast), ...(band.length ? [`${value(rest[0])} to ${value(rest[1])}`] : []), (error > 0 ? "+" : "") + formats.number(error, 0.1)];
    cells.forEach((text, n) => { row.append(made("td", n ? "" : "text", text)); });
  }
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `Worst days of ${id}`);
  scroll.append(list);
  outer.append(caption, scroll);
  return outer;
}

// Controls -----------------------------------------------------------------------------------------------
const lists = { score: [], horizon: [], measure: [] };
const OPTIONS = {
  score: ["Score", data.scores.map((score) => [score, NAMES[score]])],
  horizon: ["Horizon", data.horizons.map((horizon) => [String(horizon), horizonName(String(horizon))])],
  measure: ["Unit", Object.entries(UNITS)],
};
function choices(place, keys) {
  for (const key of keys) {
    const { outer, list } = select(...OPTIONS[key], state[key], (value) => {
      state[key] = value;
      everything = false;
      for (const other of lists[key]) other.value = value;
      drawAll();
    });
    lists[key].push(list);
    if (OPTIONS[key][1].length > 1) box(place).append(outer);
  }
}
function drawAll() {
  drawErrors();
  if (others.length && data.rival) drawPairs();
  drawBands();
  drawWhere();
  drawGroups();
  drawTable();
  if (state.series) showSeries(state.series);
}
choices("choices", ["score", "horizon", "measure"]);
choices("table-choices", ["score", "horizon", "measure"]);
if (data.rival) {
  const rivals = others.filter((name) => data.compared[data.scores[0]]["0"]?.[name] || data.compared[data.scores[0]][state.horizon][name]);
  box("rivals").append(select("Compare with", rivals.map((name) => [name, name]), state.rival, (value) => { state.rival = value; drawPairs(); drawBands(); if (state.series) showSeries(state.series); }).outer);
  choices("rivals", ["score", "horizon"]);
}
drawAll();
groupTable();
for (const name of ["strips", "ecdf"]) numbersBelow(box(`${name}-numbers`), perSeries);
if (data.groups) numbersBelow(box("strips-groups-numbers"), () => ({ caption: what(), head: ["group", "series", ours], rows: data.ids.map((id, n) => [data.groups[n], id, three(measured(ours)[n])]).sort() }));
for (const name of ["forest", "scatter"]) numbersBelow(box(`${name}-numbers`), pairNumbers);
for (const name of ["coverage", "widths", "pit", "by-horizon", "by-date", "by-volatility"]) numbersBelow(box(`${name}-numbers`), () => numbers[name]());
// At first, the series with the median error.
const ranked = data.ids.map((id, n) => [measured(ours)[n], id]).filter(([v]) => v !== null).sort((a, b) => a[0] - b[0]);
showSeries(ranked.length ? ranked[ranked.length >> 1][1] : data.ids[0]);

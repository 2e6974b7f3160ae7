"use strict";
// The page of forecasts: its controls, and the figures and tables that depend on them.
const data = JSON.parse(document.getElementById("data").textContent);
const { made, formats, day } = charts;
const box = (name) => document.getElementById(name);
const kinds = Object.keys(data.compared);
const state = { step: data.steps.length - 1, against: kinds[0] || null, series: data.ids[0], why: 0 };
const place = new Map(data.ids.map((id, n) => [id, n]));
const time = (value) => data.dated ? day(value) : String(value);
const share = (value) => value === null || value === undefined ? "" : formats.share(value, 0.001);
const change = (value) => value === null || value === undefined ? "" : formats.change(Math.abs(value) < 0.0005 ? 0 : value, 0.001);
// Of series that are not prices, medians and widths are in their units.
const units = (value) => value === null || value === undefined ? "" : formats.number(value);
const median = data.prices ? change : units, width = data.prices ? share : units;
const moved = data.prices ? change : (value) => (value > 0 ? "+" : "") + units(value);
const chance = (value) => value === null || value === undefined ? "" : formats.share(value, 0.01);
const ahead = (n = state.step) => data.steps[n] === 1 ? "1 step ahead" : `${data.steps[n]} steps ahead`;
const against = () => state.against ? data.compared[state.against] : null;
const changed = (what, n) => against() ? against()[what][state.step][n] : null;
const known = (values) => values.filter((v) => v !== null && v !== undefined);
const figures = {};
function show(name, spec) {
  if (!box(name)) return;
  if (figures[name]) figures[name].update(spec);
  else figures[name] = charts.draw(box(name), spec);
}

// Every series ---------------------------------------------------------------------------------------
function columns() {
  const then = against() ? ` since ${against().when}` : "";
  return [
    { key: "id", label: "series", text: true },
    { key: "value", label: "latest", format: (v) => formats.number(v) },
    { key: "median", label: "median", format: median, hint: data.prices ? "Expected change from the latest value" : "" },
    { key: "width", label: `width, ${data.level}\u00a0%`, format: width, hint: `Of the band${data.prices ? ", as a share of the latest value" : ""}` },
    ...(data.prices ? [{ key: "rise", label: "chance of a rise", format: chance }] : []),
    ...(kinds.length ? [
      { key: "wider", label: "width changed", format: change, hint: `By how much the band is wider${then}` },
      { key: "moved", label: "median changed", format: moved, hint: `By how much the median is higher${then}` },
      { key: "since", label: "since", format: time, hint: "The day of the forecast that it is compared with" },
    ] : []),
    ...(data.groups ? [{ key: "group", label: "group", text: true }] : []),
    ...(data.rungs ? [{ key: "rung", label: "forecast by", text: true, hint: "What the forecast rests on" }] : []),
    { key: "origin", label: "latest day", format: time },
    { key: "remark", label: "data", text: true, hint: "What was found in its rows: late, jumped, frozen and the like" },
  ];
}
const rows = () => data.ids.map((id, n) => ({ id, values: {
  id, group: data.groups && data.groups[n], rung: data.rungs && data.rungs[n], value: data.value[n], median: data.median[state.step][n], width: data.width[state.step][n], rise: data.prices ? data.rise[state.step][n] : null,
  wider: changed("width", n), moved: changed("median", n), since: against() ? against().origin[n] : null, origin: data.origin[n], remark: data.said[n],
} }));
// On a phone a table starts with the columns that fit beside each other; others can be chosen.
const narrow = matchMedia("(max-width: 40rem)").matches;
let table = null;
function drawTable() {
  if (table) {
    table.columns(columns());
    table.rows(rows());
    return;
  }
  const chosen = narrow ? ["id", "median", "width", data.prices ? "rise" : "value"]
    : columns().map((column) => column.key).filter((key) => !["since", "origin"].includes(key) && (key !== "remark" || data.said.some((one) => one)));
  table = seriesTable(box("table"), { caption: "Forecasts of every series", columns: columns(), rows: rows(), pick: open, sort: { key: "width", up: false }, chosen });
}

// One series -----------------------------------------------------------------------------------------
function unpacked(id) {
  const s = data.series[id], [low, high] = s.range, y = charts.unpack(s.y, low, high, 3);
  const t = y.map((_, n) => data.times[Array.isArray(s.at) ? s.at[n] : s.at + n]);
  const parts = s.forecast.map((text) => charts.unpack(text, low, high, 3));
  return { t, y, x: s.ahead, parts };
}
function open(id) {
  drawOne(id);
  box("series").scrollIntoView();
  box("one").focus({ preventScroll: true });
}
let whole = false;
function drawOne(id) {
  state.series = id;
  table.mark(id);
  const n = place.get(id), { t, y, x, parts } = unpacked(id), last = y.length - 1;
  // Show only so much of the past that the forecast remains visible.
  const from = whole ? 0 : Math.max(0, y.length - Math.max(60, 6 * x.length));
  const past = t.slice(from), fan = [t[last], ...x], layers = [];
  data.levels.forEach((level, k) => {
    const bound = (side) => [y[last], ...parts[1 + 2 * k + side]];
    layers.push({ kind: "fans", name: `${level} % band`, colour: "--c1", opacity: 0.16 + 0.14 * k, fans: [{ x: fan, low: bound(0), high: bound(1) }] });
  });
  layers.push({ kind: "line", name: "value", x: past, y: y.slice(from), colour: "--ink", width: 1.5 });
  layers.push({ kind: "line", name: "median", x: fan, y: [y[last], ...parts[0]], colour: "--c1", width: 2 });
  const heading = made("h3", "", id), lead = made("p", "note"), figure = made("figure"), caption = made("figcaption"), drawn = made("div"), details = made("details");
  const said = [`${formats.number(data.value[n])} on ${time(data.origin[n])}`, `${ahead()} the median is ${median(data.median[state.step][n])}${data.prices ? " away" : ""}, the band of ${data.level} % ${width(data.width[state.step][n])} wide${data.prices ? `, and a rise has a chance of ${chance(data.rise[state.step][n])}` : ""}`];
  if (changed("width", n) !== null) said.push(`since the forecast of ${time(against().origin[n])} the band's width has changed by ${change(changed("width", n))}, the median by ${moved(changed("median", n))}`);
  if (data.said[n]) said.push(data.said[n]);
  lead.textContent = `${data.groups && data.groups[n] !== data.ungrouped ? `${data.groups[n]}. ` : ""}${data.rungs ? `Forecast by ${data.rungs[n]}. ` : ""}${said.join("; ")}.`;
  const more = made("button", "reset", whole ? "Show less of the past" : "Show more of the past");
  more.type = "button";
  more.addEventListener("click", () => { whole = !whole; drawOne(id); box("one").querySelector(".more button").focus(); });
  const bar = made("p", "more");
  if (y.length > Math.max(60, 6 * x.length)) bar.append(more);
  caption.append(made("p", "", "The latest values, and the forecast as a fan: its median and its bands."));
  details.append(made("summary", "", "The numbers"));
  numbersBelow(details, () => ({ caption: `Forecast of ${id}`, head: ["time", "median", ...data.levels.flatMap((level) => [`${level} %, low`, "high"])], rows: x.map((v, k) => [time(v), ...parts.map((part) => formats.number(part[k]))]) }));
  figure.append(caption, drawn, details);
  box("one").replaceChildren(heading, lead, figure, bar, ...why(id, n));
  charts.draw(drawn, {
    label: `${id}: values from ${time(past[0])} to ${time(t[last])}, and the forecast until ${time(x[x.length - 1])} with its bands`,
    height: (width) => Math.max(260, Math.min(440, 0.45 * width)), x: { time: data.dated, label: data.dated ? "" : "time" }, y: {}, layers, follow: true,
  });
}

// The factors of the band of one step ahead, each beside its usual size, and what it did to the change.
function why(id, n) {
  const { since, said, rows } = data.explained || {}, own = rows && rows[id] && rows[id][state.why];
  if (!own) return [];
  const percent = (value) => value === null ? "" : String(Math.round(value));
  const factors = own.map(([name, usual, rank, by]) => [name, usual === null ? "" : usual.toFixed(2), percent(rank), ...(since ? [change(by)] : [])]);
  const table = numberTable({ caption: `Factors of the band of ${id}`, head: ["factor", "\u00d7 usual", "percentile", ...(since ? ["change"] : [])], rows: factors });
  table.classList.add("factors");
  const legend = `\u00d7 usual: each over its own usual size of the last year, so they need not multiply to that of the total; percentile: how many of 100 sizes of that year are smaller${since ? `; change: of the band through it since ${since}` : ""}.`;
  const bar = made("p", "bar"), label = made("label", "", "Steps ahead "), list = made("select");
  data.steps.forEach((step, k) => list.append(new Option(step, k, false, k === state.why)));
  list.addEventListener("change", () => { state.why = Number(list.value); drawOne(id); box("one").querySelector(".bar select").focus(); });
  label.append(list);
  bar.append(label);
  const sentence = said[n][state.why];
  return [made("h4", "", `Why the ${data.level} % band is this wide, ${ahead(state.why)}`), ...(sentence ? [made("p", "note", sentence)] : []), ...(data.steps.length > 1 ? [bar] : []), table, made("p", "note", legend)];
}

// All at a glance ------------------------------------------------------------------------------------
function points(x, y, ids) {
  const usable = ids.map((_, n) => n).filter((n) => x[n] !== null && x[n] !== undefined && y[n] !== null && y[n] !== undefined);
  return { kind: "points", x: usable.map((n) => x[n]), y: usable.map((n) => y[n]), ids: usable.map((n) => ids[n]), colour: "--c1", size: usable.length > 150 ? 5 : 7, opacity: 0.65 };
}
function drawGlance() {
  if (data.prices) show("chances", {
    label: `Chance of a rise and width of the ${data.level} % band, ${ahead()}, a point for each of ${data.ids.length} series`, pick: open,
    x: { label: `chance of a rise, ${ahead()}`, format: (v, step = 0.01) => formats.share(v, Math.min(step, 0.01)) }, y: { label: `width of the ${data.level} % band`, format: "share" },
    layers: [{ kind: "rule", x: 0.5 }, points(data.rise[state.step], data.width[state.step], data.ids)],
    tip: (hit) => [hit.id, `chance of a rise: ${chance(hit.x)}`, `width: ${share(hit.y)}`],
  });
  if (!against()) return;
  const { when, width, median } = against();
  if (data.prices) show("moves", {
    label: `Changes of median and of width since ${when}, ${ahead()}`, pick: open,
    x: { label: `median, since ${when}`, format: "change" }, y: { label: `width of the ${data.level} % band, since ${when}`, format: "change" },
    layers: [{ kind: "rule", x: 0 }, { kind: "rule", y: 0 }, points(median[state.step], width[state.step], data.ids)],
    tip: (hit) => [hit.id, `median: ${change(hit.x)}`, `width: ${change(hit.y)}`],
  });
  box("most").replaceChildren(
    most("Wider than before", width[state.step], (a, b) => b - a, (v) => v > 0), most("Narrower than before", width[state.step], (a, b) => a - b, (v) => v < 0),
    ...(data.prices ? [most("Median moved most", median[state.step], (a, b) => Math.abs(b) - Math.abs(a), (v) => v !== 0)] : []));
}
function most(title, values, order, keep) {
  const outer = made("div"), list = made("table", "series"), body = list.createTBody();
  const ranked = data.ids.map((id, n) => [id, values[n]]).filter(([, v]) => v !== null && keep(v)).sort((a, b) => order(a[1], b[1])).slice(0, 8);
  list.prepend(made("caption", "", title));
  for (const [id, value] of ranked) {
    const line = body.insertRow(), name = made("th"), button = made("button", "", id);
    name.scope = "row";
    button.type = "button";
    button.addEventListener("click", () => open(id));
    name.append(button);
    line.append(name, made("td", "", change(value)));
  }
  outer.append(made("h3", "", title), ranked.length ? list : made("p", "note", "None."));
  return outer;
}

// Groups ---------------------------------------------------------------------------------------------
let groups = null;
function drawGroups() {
  if (!data.groups) return;
  const members = new Map();
  data.groups.forEach((group, n) => members.set(group, [...(members.get(group) || []), n]));
  const middle = (values) => charts.quantile(known(values), 0.5);
  const lines = [...members].map(([group, of]) => ({ id: group, values: {
    id: group, series: of.length, ...(data.prices && { median: middle(of.map((n) => data.median[state.step][n])), width: middle(of.map((n) => data.width[state.step][n])), rise: middle(of.map((n) => data.rise[state.step][n])) }),
    wider: middle(of.map((n) => changed("width", n))), moved: middle(of.map((n) => changed("median", n))),
  } }));
  if (groups) return groups.rows(lines);
  const shown = columns().filter((column) => (!data.prices ? ["wider"] : narrow ? ["width", "rise"] : ["median", "width", "rise", "wider", "moved"]).includes(column.key));
  groups = seriesTable(box("group-table"), { caption: "Medians over the series of each group", name: "groups", rows: lines, sort: { key: data.prices ? "width" : "series", up: false }, columns: [{ key: "id", label: "group", text: true }, { key: "series", label: "series" }, ...shown] });
}

// Controls -------------------------------------------------------------------------------------------
const NAMES = { last: "the last forecast", [data.week]: "about a week ago" };
const lists = { step: [], against: [] };
function select(where, key, label, options) {
  if (options.length < 2 || !box(where)) return;
  const outer = made("label", "", `${label} `), list = made("select");
  for (const [value, text] of options) list.append(new Option(text, value, false, String(value) === String(state[key])));
  list.addEventListener("change", () => {
    state[key] = key === "step" ? Number(list.value) : list.value;
    for (const other of lists[key]) other.value = list.value;
    drawAll();
  });
  lists[key].push(list);
  outer.append(list);
  box(where).append(outer);
}
function drawAll() {
  drawTable();
  drawOne(state.series);
  drawGlance();
  drawGroups();
}
for (const where of ["choices", "more-choices"]) {
  select(where, "step", "Steps ahead", data.steps.map((step, n) => [n, String(step)]));
  select(where, "against", "Compared with", kinds.map((kind) => [kind, `${NAMES[kind]} (${data.compared[kind].when})`]));
}
if (data.prices) numbersBelow(box("chances-numbers"), () => ({ caption: ahead(), head: ["series", "chance of a rise", "width"], rows: data.ids.map((id, n) => [id, chance(data.rise[state.step][n]), share(data.width[state.step][n])]) }));
if (data.prices && kinds.length) numbersBelow(box("moves-numbers"), () => ({ caption: `Changes since ${against().when}, ${ahead()}`, head: ["series", "median", "width"], rows: data.ids.map((id, n) => [id, change(changed("median", n)), change(changed("width", n))]) }));
state.series = [...data.ids].sort((a, b) => data.width[state.step][place.get(b)] - data.width[state.step][place.get(a)])[0];
drawAll();

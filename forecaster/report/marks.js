"use strict";
// Parts of figures that uPlot lacks: formats of numbers and days, ranges, and marks (fans, points,
// intervals, bars, rules) on its canvas. `charts.js` puts them together.
const marks = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const made = (tag, kind, text) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const tinted = (colour, opacity) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(css(colour).slice(at, at + 2), 16));
    return `rgba(${r}, ${g}, ${b}, ${opacity})`;
  };

  // Numbers ------------------------------------------------------------------------------------
  const digits = (step) => {  // decimals: one for 0.1, three for 0.025
    for (let n = 0; n < 8; n++) if (Math.abs(step * 10 ** n - Math.round(step * 10 ** n)) < 1e-6) return n;
    return 8;
  };
  const significant = (value) => value === 0 ? 1 : Math.pow(10, Math.floor(Math.log10(Math.abs(value))) - 3);
  const minus = (text) => /^-[0.]*$/.test(text) ? text.slice(1) : text.replace("-", "\u2212");  // no -0.00
  const formats = {
    number: (value, step = significant(value)) => minus(value.toFixed(digits(step))),
    share: (value, step = 0.001) => minus((100 * value).toFixed(digits(100 * step))) + "\u202f%",
    change: (value, step = 0.001) => {
      const text = formats.share(value, step);
      return (value > 0 && /[1-9]/.test(text) ? "+" : "") + text;
    },
  };
  const formatOf = (axis) => typeof axis.format === "function" ? axis.format : formats[axis.format || "number"];
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const pad = (n) => String(n).padStart(2, "0");
  const day = (seconds) => {
    const t = new Date(1000 * seconds);
    const text = `${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]} ${t.getUTCFullYear()}`;
    return seconds % 86400 ? `${text} ${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}` : text;
  };
  // Ticks of a time axis: the year is shown where it begins, and at the first tick.
  const ticks = (splits, step) => splits.map((seconds, n) => {
    const t = new Date(1000 * seconds), year = t.getUTCFullYear();
    const fresh = n === 0 || new Date(1000 * splits[n - 1]).getUTCFullYear() !== year;
    if (step >= 364 * 86400) return String(year);
    if (step >= 27 * 86400) return MONTHS[t.getUTCMonth()] + (fresh ? `\n${year}` : "");
    if (step >= 86400) return `${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]}` + (fresh ? `\n${year}` : "");
    const midnight = seconds % 86400 === 0;
    return midnight || n === 0 ? `${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}\n${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]}`
      : `${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}`;
  });

  // Ranges -------------------------------------------------------------------------------------
  const finite = (values) => values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  const spans = {
    fans: (layer, axis) => layer.fans.flatMap((fan) => axis === "x" ? fan.x : [...fan.low, ...fan.high]),
    paths: (layer, axis) => layer.fans.flatMap((path) => path[axis]),
    bars: (layer, axis) => axis === "x" ? [...layer.from, ...layer.to] : [0, ...layer.y],
    rule: (layer, axis) => layer[axis] === undefined ? [] : [layer[axis]],
    box: (layer, axis) => axis === "x" ? [layer.low, layer.high] : [layer.row],
  };
  const valuesOf = (layer, axis) => {
    if (spans[layer.kind]) return spans[layer.kind](layer, axis);
    return axis === "x" ? layer.x : [layer.y, layer.low, layer.high].flatMap((part) => part || []);
  };
  // The part of a layer between two x, with one more point on each side.
  const between = (layer, [low, high]) => {
    if (layer.fans) return { ...layer, fans: layer.fans.filter(({ x }) => x[x.length - 1] >= low && x[0] <= high) };
    if (!["line", "band"].includes(layer.kind)) return layer;
    const from = Math.max(0, layer.x.findIndex((v) => v >= low) - 1), end = layer.x.findIndex((v) => v > high);
    const cut = (part) => part && part.slice(from, end < 0 ? undefined : end + 1);
    return { ...layer, x: cut(layer.x), y: cut(layer.y), low: cut(layer.low), high: cut(layer.high) };
  };
  const extent = (given, axis, room, seen) => {
    const layers = seen ? given.map((layer) => between(layer, seen)) : given;
    const all = finite(layers.flatMap((layer) => valuesOf(layer, axis)));
    if (!all.length) return [0, 1];
    const [low, high] = all.reduce(([l, h], v) => [Math.min(l, v), Math.max(h, v)], [Infinity, -Infinity]);
    const more = (high - low || Math.abs(high) || 1) * room;
    const stands = axis === "y" && low === 0 && layers.some((layer) => layer.kind === "bars");
    return [stands ? 0 : low - more, high + more];
  };

  // Marks that uPlot does not draw ----------------------------------------------------------------
  const painters = {
    fans(u, context, layer) {
      context.fillStyle = tinted(layer.colour, layer.opacity || 0.2);
      for (const fan of layer.fans) {
        context.beginPath();
        fan.x.forEach((x, n) => context.lineTo(u.valToPos(x, "x", true), u.valToPos(fan.low[n], "y", true)));
        for (let n = fan.x.length - 1; n >= 0; n--) context.lineTo(u.valToPos(fan.x[n], "x", true), u.valToPos(fan.high[n], "y", true));
        context.fill();
      }
    },
    paths(u, context, layer) {
      context.strokeStyle = css(layer.colour);
      context.lineWidth = (layer.width || 1.6) * devicePixelRatio;
      context.setLineDash((layer.dash || []).map((d) => d * devicePixelRatio));
      for (const { x, y } of layer.fans) {
        context.beginPath();
        x.forEach((value, n) => context.lineTo(u.valToPos(value, "x", true), u.valToPos(y[n], "y", true)));
        context.stroke();
      }
      context.setLineDash([]);
    },
    bars(u, context, layer) {
      context.fillStyle = tinted(layer.colour, layer.opacity || 0.75);
      const zero = u.valToPos(0, "y", true);
      layer.y.forEach((y, n) => {
        const left = u.valToPos(layer.from[n], "x", true), right = u.valToPos(layer.to[n], "x", true);
        const top = u.valToPos(y, "y", true), gap = Math.min(devicePixelRatio, (right - left) / 6);
        context.fillRect(left + gap / 2, top, right - left - gap, zero - top);
      });
    },
    rule(u, context, layer) {
      const { left, top, width, height } = u.bbox;
      context.strokeStyle = css(layer.colour || "--soft");
      context.lineWidth = devicePixelRatio;
      context.setLineDash(layer.dash ? layer.dash.map((d) => d * devicePixelRatio) : []);
      context.beginPath();
      if (layer.diagonal) {
        const low = Math.max(u.scales.x.min, u.scales.y.min), high = Math.min(u.scales.x.max, u.scales.y.max);
        for (const v of [low, high]) context.lineTo(u.valToPos(v, "x", true), u.valToPos(v, "y", true));
      } else if (layer.y !== undefined) {
        const y = u.valToPos(layer.y, "y", true);
        context.moveTo(left, y);
        context.lineTo(left + width, y);
      } else {
        const x = u.valToPos(layer.x, "x", true);
        context.moveTo(x, top);
        context.lineTo(x, top + height);
      }
      context.stroke();
      context.setLineDash([]);
    },
    intervals(u, context, layer) {
      const step = u.bbox.width / Math.max(1, u.scales.x.max - u.scales.x.min);
      context.strokeStyle = tinted(layer.colour, 0.55);
      context.lineWidth = Math.max(0.75, Math.min(3, step / devicePixelRatio / 2.5)) * devicePixelRatio;
      context.beginPath();
      layer.x.forEach((x, n) => {
        if (layer.low[n] === null) return;
        const at = u.valToPos(x, "x", true);
        context.moveTo(at, u.valToPos(layer.low[n], "y", true));
        context.lineTo(at, u.valToPos(layer.high[n], "y", true));
      });
      context.stroke();
      painters.points(u, context, { ...layer, size: Math.max(2, Math.min(7, step / devicePixelRatio)) });
    },
    box(u, context, layer) {
      const [low, middle, high] = [layer.low, layer.middle, layer.high].map((v) => u.valToPos(v, "x", true));
      const y = u.valToPos(layer.row, "y", true), half = 4 * devicePixelRatio;
      context.fillStyle = css(layer.colour);
      context.strokeStyle = css("--paper");
      context.lineWidth = 1.5 * devicePixelRatio;
      context.strokeRect(low, y - half, high - low, 2 * half);
      context.fillRect(low, y - half, high - low, 2 * half);
      context.fillStyle = css("--paper");
      context.fillRect(middle - 1.5 * devicePixelRatio, y - 1.6 * half, 3 * devicePixelRatio, 3.2 * half);
      context.fillStyle = css("--ink");
      context.fillRect(middle - 0.75 * devicePixelRatio, y - 1.6 * half, 1.5 * devicePixelRatio, 3.2 * half);
    },
    points(u, context, layer) {
      const radius = (layer.size || 5) / 2 * devicePixelRatio;
      context.fillStyle = tinted(layer.colour, layer.opacity || 0.8);
      context.strokeStyle = css(layer.colour);
      context.lineWidth = 1.4 * devicePixelRatio;
      layer.x.forEach((x, n) => {
        if (x === null || layer.y[n] === null) return;
        context.beginPath();
        context.arc(u.valToPos(x, "x", true), u.valToPos(layer.y[n], "y", true), radius, 0, 2 * Math.PI);
        if (layer.hollow) context.stroke(); else context.fill();
      });
    },
  };
  const under = ["fans", "paths", "bars", "rule"], over = ["intervals", "points"], last = ["box"];
  const paint = (u, layers, kinds) => {
    const context = u.ctx, { left, top, width, height } = u.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    for (const layer of layers) if (kinds.includes(layer.kind)) painters[layer.kind](u, context, layer);
    context.restore();
  };

  const stroked = ["line", "steps", "paths"];
  const swatch = (layer) => {
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    picture.setAttribute("viewBox", "0 0 26 10");
    picture.setAttribute("aria-hidden", "true");
    const part = (tag, attributes) => {
      const mark = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) mark.setAttribute(key, value);
      mark.style.setProperty(layer.hollow || stroked.includes(layer.kind) ? "stroke" : "fill", `var(${layer.colour})`);
      picture.append(mark);
    };
    if (stroked.includes(layer.kind)) part("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2.2, "stroke-dasharray": (layer.dash || []).join(" ") });
    else if (["band", "fans", "bars"].includes(layer.kind)) part("rect", { width: 26, height: 10, "fill-opacity": layer.opacity || 0.3 });
    else part("circle", { cx: 13, cy: 5, r: 4, ...(layer.hollow ? { fill: "none", "stroke-width": 1.5 } : {}) });
    return picture;
  };

  return { css, made, tinted, formats, formatOf, ticks, day, extent, finite, under, over, last, paint, stroked, swatch };
})();

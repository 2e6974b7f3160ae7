"use strict";
// Figures drawn in the browser by uPlot, each in a box:
//   charts.draw(box, { label, x, y, layers, ... }) returns { update(changes), scale("x" or "y"), destroy() }
// - label: the text for screen readers; put the numbers in a table beside the figure
// - x, y: { label, format, range: [low, high], time, names }; format: a function of (value, step),
//   or "share" (0.12 is 12 %) or "number"; time: seconds since 1970; names: a name per row, on y
// - layers, from the lowest to the highest, each { kind, name, colour, ... }:
//     line, steps   x, y; dash, width       band   x, low, high
//     fans          fans: [{ x, low, high }]; paths  fans: [{ x, y }] (each by itself)
//     points        x, y, ids; size, hollow intervals   x, y, low, high, ids
//     bars          from, to, y             rule   x or y or diagonal: true
//     box           row, low, middle, high (of a row of y.names: a bar with a notch)
//   colour: a CSS variable such as "--c1"; rank: its position in the legend
// - follow: on zooming in, the y axis adapts to the visible part; flat: only the x axis zooms
// - height: in pixels, or a function of the width; pick(id): on a click; tip(hit): lines of text
// Dragging zooms in. Colours follow the page's theme, and the figure follows the width of its box.
const charts = (() => {
  const live = new Set();
  const { css, made, tinted, formats, formatOf, ticks, day, extent, finite, under, over, last, paint, swatch } = marks;

  // uPlot's own series: a table of all x, and a column for each line or bound -----------------------
  const columnsOf = (layers) => {
    const tables = [], series = [{}], bands = [];
    const add = (layer, values, style) => {
      tables.push([layer.x, values]);
      series.push({ spanGaps: false, points: { show: false }, ...style });
    };
    for (const layer of layers) {
      const line = { stroke: () => css(layer.colour), width: layer.width || 1.6, dash: layer.dash };
      if (layer.kind === "line") add(layer, layer.y, line);
      if (layer.kind === "steps") add(layer, layer.y, { ...line, paths: uPlot.paths.stepped({ align: 1 }) });
      if (layer.kind === "band") {
        add(layer, layer.high, { width: 0 });
        add(layer, layer.low, { width: 0 });
        bands.push({ series: [series.length - 2, series.length - 1], fill: tinted(layer.colour, layer.opacity || 0.2) });
      }
    }
    return { tables, series, bands };
  };

  const axisOf = (axis, side, room) => ({
    stroke: () => css("--soft"), font: "12px system-ui, sans-serif", gap: 6,
    grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false },
    space: axis.names ? 1 : room,
    splits: axis.names ? () => axis.names.map((_, n) => n) : axis.splits && (() => axis.splits),
    values: (u, splits, n, space, step) => {
      if (axis.names) return splits.map((at) => axis.names[at]);
      if (axis.time) return ticks(splits, step);
      return splits.map((value) => value === null ? "" : formatOf(axis)(value, axis.splits ? undefined : step));
    },
    size: side === "x" ? (axis.time ? 40 : 26)
      : (u, values) => 14 + 6.7 * Math.max(2, ...(values || [""]).map((text) => text.length)),
  });

  // The mark nearest to the pointer ------------------------------------------------------------------
  const nearest = (u, layers, left, top) => {
    let best = null, least = 26 * 26;
    for (const layer of layers) {
      if (!over.includes(layer.kind)) continue;
      layer.x.forEach((x, n) => {
        if (x === null || layer.y[n] === null) return;
        const across = u.valToPos(x, "x") - left;
        const down = layer.kind === "intervals" ? 0 : u.valToPos(layer.y[n], "y") - top;
        const distance = across * across + down * down;
        if (distance < least) { least = distance; best = { layer, n, id: layer.ids && layer.ids[n], x, y: layer.y[n] }; }
      });
    }
    return best;
  };
  const position = (x, value) => {  // of the last x up to the value
    let low = 0, high = x.length - 1, at = -1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (x[middle] <= value) { at = middle; low = middle + 1; } else high = middle - 1;
    }
    return at;
  };
  const nearestOf = (layer, value) => {  // the nearest x of a line, or of the fan or path that spans it
    if (layer.fans) {
      const fan = layer.fans.find(({ x }) => value >= (x[0] + (x[1] ?? x[0])) / 2 && value <= x[x.length - 1] + 1e-9);
      return fan ? { ...nearestOf({ x: fan.x }, value), part: fan } : { at: -1, part: layer };
    }
    let at = position(layer.x, value);
    if (layer.kind !== "steps" && at + 1 < layer.x.length && (at < 0 || layer.x[at + 1] - value < value - layer.x[at])) at++;
    return { at, part: layer };
  };
  const byRank = (a, b) => (a.rank || 0) - (b.rank || 0);
  const READ = ["line", "steps", "band", "fans", "paths"];
  const rowsAt = (layers, value, y) => layers.filter((layer) => layer.name && READ.includes(layer.kind)).sort(byRank).map((layer) => {
    const { at, part } = nearestOf(layer, value);
    const show = (values) => at < 0 || values[at] === null || values[at] === undefined ? "\u2013" : formatOf(y)(values[at]);
    return { layer, at, x: at < 0 ? null : part.x[at], text: part.low ? `${show(part.low)} to ${show(part.high)}` : at < 0 ? "\u2013" : show(part.y) };
  });

  // A figure -----------------------------------------------------------------------------------------
  function draw(box, first) {
    let spec = first, plot = null, width = 0;
    const hidden = new Set();
    const legend = made("div", "legend"), frame = made("div", "chart"), tip = made("div", "tip");
    const above = made("div", "axis-title"), canvas = made("div", "canvas"), below = made("div", "axis-title below");
    const reset = made("button", "reset", "Show all again");
    reset.type = "button";
    reset.hidden = true;
    reset.addEventListener("click", () => render());
    frame.setAttribute("role", "img");
    tip.setAttribute("aria-hidden", "true");
    frame.append(above, canvas, below, tip);
    box.replaceChildren(legend, frame, reset);

    const shown = () => spec.layers.filter((layer) => !hidden.has(layer.name));
    function legends() {
      const named = new Map();
      for (const layer of spec.layers) if (layer.name && !named.has(layer.name)) named.set(layer.name, layer);
      const entries = [...named.values()].sort(byRank);
      legend.replaceChildren(...(named.size < 2 && !spec.legend ? [] : entries.map((layer) => {
        const button = made("button", "", "");
        button.type = "button";
        button.setAttribute("aria-pressed", String(!hidden.has(layer.name)));
        button.title = "Show or hide";
        button.append(swatch(layer), layer.name);
        button.addEventListener("click", () => {
          if (!hidden.delete(layer.name)) hidden.add(layer.name);
          button.setAttribute("aria-pressed", String(!hidden.has(layer.name)));
          render();
        });
        return button;
      })));
    }

    const height = () => typeof spec.height === "function" ? spec.height(width) : spec.height || Math.max(220, Math.min(340, 0.55 * width));
    function options(layers) {
      const x = spec.x || {}, y = spec.y || {};
      // Hidden lines still count for the ranges, so that hiding one does not move the others.
      const xs = x.range || extent(spec.layers, "x", x.room ?? 0.02), ys = y.range || extent(spec.layers, "y", y.room ?? 0.06);
      const { tables, series, bands } = columnsOf(layers);
      const data = uPlot.join([[[...xs]], ...tables]);
      let began = null;
      return [{
        width, height: Math.round(height()), series, bands, legend: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
        padding: [8, 20, 0, 0],
        scales: {
          x: { time: Boolean(x.time), range: (u, low, high) => low === null ? xs : low === high ? xs : [low, high] },
          y: { range: () => ys, dir: y.names ? -1 : 1 },
        },
        axes: [axisOf(x, "x", x.time ? 64 : 58), axisOf(y, "y", 34)],
        cursor: { y: false, points: { show: false }, drag: { x: true, y: !spec.flat && !spec.follow, uni: 24, dist: 8 } },
        hooks: {
          drawAxes: [(u) => paint(u, layers, under)],
          draw: [(u) => { paint(u, layers, over); paint(u, layers, last); }],
          setScale: [(u, key) => {
            if (key !== "x" || !spec.follow) return;
            const [low, high] = extent(layers, "y", y.room ?? 0.06, [u.scales.x.min, u.scales.x.max]);
            queueMicrotask(() => { if (u === plot) u.setScale("y", { min: low, max: high }); });  // once this is done
          }],
          setSelect: [(u) => { if (u.select.width > 0) reset.hidden = false; }],
          ready: [(u) => {
            u.over.addEventListener("pointerdown", (event) => { began = [event.clientX, event.clientY]; point(u, event); });
            u.over.addEventListener("pointermove", (event) => point(u, event));
            u.over.addEventListener("pointerleave", () => { tip.hidden = true; });
            u.over.addEventListener("click", (event) => {
              const moved = began && Math.hypot(event.clientX - began[0], event.clientY - began[1]) > 5;
              const hit = !moved && spec.pick && at(u, event);
              if (hit && hit.id) spec.pick(hit.id);
            });
          }],
        },
      }, data];
    }

    const at = (u, event) => {
      const place = u.over.getBoundingClientRect();
      return nearest(u, shown(), event.clientX - place.left, event.clientY - place.top);
    };
    function point(u, event) {
      const place = u.over.getBoundingClientRect(), outer = frame.getBoundingClientRect();
      const hit = at(u, event), value = u.posToVal(event.clientX - place.left, "x");
      u.over.style.cursor = hit && spec.pick ? "pointer" : "crosshair";
      tip.replaceChildren(...(hit ? hitLines(hit) : cursorLines(value)));
      tip.hidden = !tip.childElementCount;
      const left = event.clientX - outer.left, room = outer.width - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room, left > outer.width / 2 ? left - tip.offsetWidth - 14 : left + 14))}px`;
      tip.style.top = `${Math.max(0, event.clientY - outer.top - tip.offsetHeight - 8)}px`;
    }
    function hitLines(hit) {
      const x = spec.x || {}, y = spec.y || {};
      const lines = spec.tip ? spec.tip(hit) : [hit.id || hit.layer.name, `${x.label || "x"}: ${formatOf(x)(hit.x)}`, `${y.label || "y"}: ${formatOf(y)(hit.y)}`];
      return lines.map((text, n) => made(n ? "div" : "strong", "", text));
    }
    function cursorLines(value) {
      const x = spec.x || {}, rows = rowsAt(shown(), value, spec.y || {});
      if (!rows.length) return [];
      const line = rows.find((row) => row.layer.kind === "line" && row.x !== null), own = line ? line.x : value;
      const lines = rows.map(({ layer, text }) => {
        const line = made("div", "row");
        line.append(swatch(layer), made("span", "", layer.name), made("b", "", text));
        return line;
      });
      return [made("strong", "", x.time ? day(own) : `${x.short || x.label || ""} ${formatOf(x)(own)}`.trim()), ...lines];
    }

    function render() {
      width = Math.floor(canvas.clientWidth);
      if (plot) plot.destroy();
      plot = null;
      reset.hidden = true;
      tip.hidden = true;
      frame.setAttribute("aria-label", spec.label);
      above.textContent = (spec.y && spec.y.label) || "";
      below.textContent = (spec.x && spec.x.label) || "";
      if (width < 40) return;  // folded away: drawn once it is visible
      plot = new uPlot(...options(shown()), canvas);
    }
    const sized = new ResizeObserver(() => {
      if (Math.floor(canvas.clientWidth) === width) return;
      if (!plot || canvas.clientWidth < 40) render();
      else plot.setSize({ width: width = Math.floor(canvas.clientWidth), height: Math.round(height()) });
    });
    const handle = {
      update(changes) { spec = { ...spec, ...changes }; legends(); render(); },
      render,
      scale: (key) => [plot.scales[key].min, plot.scales[key].max],
      destroy() { sized.disconnect(); live.delete(handle); if (plot) plot.destroy(); box.replaceChildren(); },
    };
    legends();
    render();
    sized.observe(canvas);
    live.add(handle);
    return handle;
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => live.forEach((handle) => handle.render()));

  // The empirical distribution function of values, as steps from 0 to 1.
  function ecdf(values) {
    const x = finite(values).sort((a, b) => a - b), points = { x: [], y: [] };
    x.forEach((value, n) => {
      if (n + 1 < x.length && x[n + 1] === value) return;
      points.x.push(value);
      points.y.push((n + 1) / x.length);
    });
    return points.x.length ? { x: [points.x[0], ...points.x.slice(0)], y: [0, ...points.y] } : { x: [], y: [] };
  }
  function quantile(values, share) {
    const sorted = finite(values).sort((a, b) => a - b), at = share * (sorted.length - 1), below = Math.floor(at);
    return sorted.length ? sorted[below] + (at - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]) : null;
  }

  // Reverses `pack` of packing.py: numbers between two values, `width` letters each; the last code is "none".
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  function unpack(text, low, high, width) {
    const most = 64 ** width - 1, values = [];
    for (let at = 0; at < text.length; at += width) {
      let number = 0;
      for (let n = 0; n < width; n++) number = 64 * number + LETTERS.indexOf(text[at + n]);
      values.push(number === most ? null : low + (number / (most - 1)) * (high - low));
    }
    return values;
  }

  return { draw, ecdf, quantile, unpack, formats, day, made, extent };
})();

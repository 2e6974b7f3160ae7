"use strict";
// Tables that sort, search and choose their columns.
//   seriesTable(box, { caption, columns, rows, pick, sort, chosen }) returns { rows, mark, choose }
// - columns: [{ key, label, hint, format, text }]; format: a function of a value; text: whether the
//   column has words, which are searched and aligned to the left
// - rows: [{ id, values: { key: value } }]; null is shown as nothing, and sorted last
// - pick(id): on a click, or Enter; sort: { key, up }; chosen: keys of the columns shown at first
function seriesTable(box, { caption, columns, rows: given, pick, sort: first, chosen, name }) {
  const { made } = charts;
  let rows = given, sort = { ...first }, shown = new Set(chosen || columns.map((c) => c.key)), current = null;
  const bar = made("div", "bar"), label = made("label", "search", "Search "), search = made("input");
  const found = made("span", "found"), scroll = made("div", "scroll"), table = made("table", "series");
  const head = table.createTHead().insertRow(), body = table.createTBody();
  search.type = "search";
  search.autocomplete = "off";
  search.spellcheck = false;
  label.append(search);
  found.setAttribute("role", "status");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  table.prepend(made("caption", "", caption));
  scroll.append(table);
  bar.append(label, found);
  if (chosen) bar.append(chooser());
  box.replaceChildren(bar, scroll);

  const visible = () => columns.filter((column) => shown.has(column.key));
  const compare = (a, b) => {
    const x = a.values[sort.key], y = b.values[sort.key];
    const none = [x, y].map((v) => v === null || v === undefined || v === "");
    if (none[0] || none[1]) return none[0] - none[1] || a.id.localeCompare(b.id);
    const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return (sort.up ? order : -order) || a.id.localeCompare(b.id);
  };
  function matching() {
    const wanted = search.value.trim().toLowerCase(), texts = columns.filter((column) => column.text);
    const all = [...rows].sort(compare);
    if (!wanted) return all;
    const spelled = (text) => String(text ?? "").toLowerCase().replaceAll(".", "-");
    return all.filter((row) => texts.some((column) => spelled(row.values[column.key]).includes(wanted.replaceAll(".", "-"))));
  }

  function heading(column) {
    const cell = made("th", column.text ? "text" : ""), button = made("button", "", column.label);
    cell.scope = "col";
    if (column.hint) cell.title = column.hint;
    button.type = "button";
    button.addEventListener("click", () => {
      sort = { key: column.key, up: sort.key === column.key ? !sort.up : true };
      fill();
    });
    cell.append(button);
    cell.setAttribute("aria-sort", sort.key !== column.key ? "none" : sort.up ? "ascending" : "descending");
    return cell;
  }
  function line(row) {
    const made_ = document.createElement("tr");
    made_.dataset.id = row.id;
    visible().forEach((column, n) => {
      const value = row.values[column.key], cell = made(n ? "td" : "th", column.text ? "text" : "");
      const text = value === null || value === undefined ? "" : column.format ? column.format(value) : String(value);
      if (n === 0) {
        cell.scope = "row";
        const button = made("button", "", text);
        button.type = "button";
        cell.append(pick ? button : text);
      } else cell.textContent = text;
      made_.append(cell);
    });
    return made_;
  }
  function fill() {
    const matches = matching(), at = document.activeElement && head.contains(document.activeElement)
      ? [...head.cells].indexOf(document.activeElement.closest("th")) : -1;
    head.replaceChildren(...visible().map(heading));
    if (at >= 0 && head.cells[at]) head.cells[at].firstChild.focus();
    body.replaceChildren(...matches.map(line));
    found.textContent = search.value.trim() ? `${matches.length} of ${rows.length}` : `${rows.length} ${name || "series"}`;
    mark(current);
  }
  function mark(id) {
    current = id;
    for (const row of body.rows) {
      row.classList.toggle("current", row.dataset.id === id);
      const button = row.querySelector("button");
      if (button) button.setAttribute("aria-current", String(row.dataset.id === id));
    }
  }
  function chooser() {
    const details = made("details", "chooser"), list = made("div", "choices");
    details.append(made("summary", "", "Columns"), list);
    for (const column of columns.slice(1)) {
      const choice = made("label"), box = made("input");
      box.type = "checkbox";
      box.value = column.key;
      box.checked = shown.has(column.key);
      box.addEventListener("change", () => {
        if (box.checked) shown.add(column.key); else shown.delete(column.key);
        fill();
      });
      choice.append(box, ` ${column.label}`);
      if (column.hint) choice.title = column.hint;
      list.append(choice);
    }
    return details;
  }

  search.addEventListener("input", fill);
  search.addEventListener("keydown", (event) => {
    const row = event.key === "Enter" && pick && matching()[0];
    if (row) pick(row.id);
  });
  body.addEventListener("click", (event) => {
    const row = pick && event.target.closest("tr");
    if (row) pick(row.dataset.id);
  });
  fill();
  return {
    mark,
    rows(changed) { rows = changed; fill(); },
    columns(changed) { columns = changed; fill(); },
  };
}

// A plain table of numbers, which a figure's <details> shows when it is opened.
function numberTable({ head, rows, caption }) {
  const { made } = charts, scroll = made("div", "scroll"), table = made("table"), top = table.createTHead().insertRow(), body = table.createTBody();
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  head.forEach((text) => { top.append(Object.assign(made("th", "", text), { scope: "col" })); });
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text) => { line.insertCell().textContent = text; });
  }
  scroll.append(table);
  return scroll;
}
function numbersBelow(details, make) {
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    [...details.children].slice(1).forEach((child) => child.remove());
    details.append(numberTable(make()));
  });
}

// Tables that are sorted by their headings and shown a page of rows at a time.

const ROWS_SHOWN = 50;

// columns: { title, value: row => number or text, show: row => text or element, number: bool, title }
// unfold: row => element of further details, or null
function table(caption, columns, rows, { unfold = null, empty = "none", name = null } = {}) {
  if (rows.length === 0) return element("p", { class: "quiet", "data-table": name }, `${caption}: ${empty}.`);
  let ordered = rows.slice(), by = null, descending = false, start = 0;
  const body = element("tbody");
  const heads = columns.map((column) => element("th", { scope: "col", class: column.number ? "number" : null },
    element("button", { type: "button", on: { click: () => sortBy(column) } }, column.title)));
  const pager = element("p", { class: "pager" });

  function sortBy(column) {
    descending = by === column ? !descending : Boolean(column.number);
    by = column;
    const sign = descending ? -1 : 1;
    const missing = (value) => value === null || value === undefined;
    ordered = rows.slice().sort((one, other) => {
      const [left, right] = [column.value(one), column.value(other)];
      if (missing(left) || missing(right)) return missing(left) - missing(right);
      return sign * (column.number ? left - right : String(left).localeCompare(String(right), "en"));
    });
    heads.forEach((head, number) => {
      if (columns[number] === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    start = 0;
    fill();
  }

  function fill() {
    body.replaceChildren(...ordered.slice(start, start + ROWS_SHOWN).flatMap(rowsOf));
    const end = Math.min(start + ROWS_SHOWN, ordered.length);
    pager.hidden = ordered.length <= ROWS_SHOWN;
    pager.replaceChildren(
      button("Back", start === 0, () => { start -= ROWS_SHOWN; fill(); }),
      ` rows ${count(start + 1)} to ${count(end)} of ${count(ordered.length)} `,
      button("Next", end === ordered.length, () => { start += ROWS_SHOWN; fill(); }));
  }

  function rowsOf(row) {
    const cells = columns.map((column) => {
      const value = column.value(row);
      const shown = column.show ? column.show(row) : column.number ? count(value) : value ?? "–";
      return element("td", { class: column.number ? "number" : null,
        "data-value": column.number ? value : null }, shown);
    });
    const made = element("tr", {}, ...cells);
    if (unfold === null) return [made];
    const details = element("tr", { hidden: true, class: "unfolded" });
    const toggle = element("button", { type: "button", class: "unfold", "aria-expanded": "false",
      "aria-label": "Show details", on: { click: () => {
        if (details.childElementCount === 0) details.append(element("td", { colspan: columns.length }, unfold(row)));
        details.hidden = !details.hidden;
        toggle.setAttribute("aria-expanded", String(!details.hidden));
        toggle.textContent = details.hidden ? "+" : "−";
      } } }, "+");
    cells[0].prepend(toggle, " ");
    return [made, details];
  }

  fill();
  return element("div", { "data-table": name },
    element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
      element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads)), body)),
    pager);
}

function button(text, disabled, act) {
  return element("button", { type: "button", disabled, on: { click: act } }, text);
}

const text = (title, value) => ({ title, value });
const number = (title, value, show) => ({ title, value, show: show ? (row) => show(value(row)) : undefined, number: true });

// A table whose columns sort and whose cells are reached with the arrow keys; the body is one tab stop.

class Grid {
  /**
   * @param place element that the table goes into
   * @param caption what the table shows, for screen readers
   */
  constructor(place, caption) {
    this.head = el("thead");
    this.table = el("table", {}, el("caption", { class: "hidden" }, caption), this.head);
    this.table.addEventListener("keydown", (event) => this.move(event));
    this.table.addEventListener("focusin", (event) => this.stop(event.target));
    place.append(el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, this.table));
    this.sort = null;
  }

  /**
   * Draw the table; the sorting stays where its column does.
   * @param columns of {key, label, above, title, class, first, value(row), cell(row) -> node}; `first` is the way a
   *   first press sorts, 1 up, -1 down, 0 not at all: then cell(null) is the heading
   * @param groups of {title: node or null, rows}
   */
  show(columns, groups) {
    this.columns = columns;
    this.groups = groups;
    if (!columns.some(({ key }) => key === this.sort?.key)) this.sort = null;
    const above = columns.some((column) => column.above !== undefined) ? [this.spans()] : [];
    const headings = columns.map((column) => this.heading(column));
    this.head.replaceChildren(...above, el("tr", {}, ...headings));
    this.headings = headings.filter((heading) => heading.dataset.key);
    this.fill();
  }

  /** The row of headings that span columns with the same `above`. */
  spans() {
    const runs = [];
    for (const { above = "" } of this.columns) {
      if (runs.at(-1)?.above === above) runs.at(-1).width += 1;
      else runs.push({ above, width: 1 });
    }
    return el("tr", { class: "above" }, ...runs.map(({ above, width }) =>
      el(above ? "th" : "td", { colspan: width, scope: above ? "colgroup" : null }, apart(above))));
  }

  heading(column) {
    if (!column.first) return el("th", { scope: "col", class: column.class, title: column.title }, column.cell(null));
    const button = el("button", { type: "button", title: column.title, on: { click: () => this.sortBy(column) } },
      el("span", { class: "label" }, column.label), el("span", { class: "order", "aria-hidden": "true" }));
    return el("th", { scope: "col", class: column.class, "data-key": column.key }, button);
  }

  sortBy(column) {
    const again = this.sort?.key === column.key;
    this.sort = { key: column.key, way: again ? -this.sort.way : column.first };
    this.fill();
    say(`Sorted by ${column.label}, ${this.sort.way > 0 ? "ascending" : "descending"}`);
  }

  fill() {
    this.table.toggleAttribute("data-sorted", Boolean(this.sort));
    for (const heading of this.headings) {
      const way = heading.dataset.key === this.sort?.key ? this.sort.way : 0;
      if (way) heading.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
      heading.querySelector(".order").textContent = { 1: "▲", "-1": "▼", 0: "" }[way];
    }
    for (const body of [...this.table.tBodies]) body.remove();
    for (const { title, rows } of this.groups) {
      const above = title && el("tr", { class: "group" },
        el("th", { scope: "rowgroup", colspan: this.columns.length }, el("div", {}, title)));
      this.table.append(el("tbody", {}, above, this.sorted(rows).map((row) => this.row(row))));
    }
    const reached = this.table.querySelectorAll("tbody :is(button, a)");
    for (const thing of reached) thing.tabIndex = -1;
    this.stop(reached[0]);
  }

  row(row) {
    return el("tr", { class: row.class ?? null }, ...this.columns.map((column, i) =>
      el(i ? "td" : "th", { class: column.class, scope: i ? null : "row" }, column.cell(row))));
  }

  /** Rows in order; what has no value comes last either way, equal ones stay as they were. */
  sorted(rows) {
    const column = this.columns.find(({ key }) => key === this.sort?.key);
    if (!column) return rows;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    return rows.map((row) => [column.value(row), row]).sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return this.sort.way * compare(a, b);
    }).map(([, row]) => row);
  }

  /** Make one thing of the body the tab stop. */
  stop(target) {
    if (!target?.closest("tbody") || !target.matches("button, a")) return;
    if (this.stopped) this.stopped.tabIndex = -1;
    this.stopped = target;
    target.tabIndex = 0;
  }

  move(event) {
    const here = event.target;
    if (!here.closest("tbody") || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = this.neighbour(here, event.key);
    if (next === undefined) return;
    event.preventDefault();
    next?.focus();
  }

  /** Where a key leads from a thing of the body: null at the end, undefined for other keys. */
  neighbour(here, key) {
    const row = here.closest("tr");
    const inRow = [...row.querySelectorAll("button, a")];
    if (key === "Home") return inRow[0];
    if (key === "End") return inRow.at(-1);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      return inRow[inRow.indexOf(here) + (key === "ArrowRight" ? 1 : -1)] ?? null;
    }
    if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
    const rows = [...this.table.querySelectorAll("tbody tr")];
    const step = key === "ArrowDown" ? 1 : -1;
    const column = here.closest("td, th").cellIndex;
    for (let i = rows.indexOf(row) + step; rows[i]; i += step) {
      const found = rows[i].cells[column]?.querySelector("button, a");
      if (found) return found;
    }
    return null;
  }
}

// A table whose columns sort and whose cells are reached with the arrow keys; the body is one tab stop.

class Grid {
  /**
   * @param place element that the table goes into, instead of what is there
   * @param caption what the table shows, for screen readers
   * @param onSort told when a heading was pressed
   */
  constructor(place, caption, onSort = () => {}) {
    this.head = el("thead");
    this.table = el("table", {}, el("caption", { class: "hidden" }, caption), this.head);
    this.table.addEventListener("keydown", (event) => this.move(event));
    this.table.addEventListener("focusin", (event) => this.stop(event.target));
    place.replaceChildren(this.table);
    this.sort = null;
    this.onSort = onSort;
    this.isGroup = () => true;
    this.isRow = () => true;
  }

  /**
   * Draw the table; the sorting stays where its column does.
   * @param columns of {key, label, note, title, class, first, value(row), cell(row) -> node}; `first` is the way a
   *   first press sorts, 1 up, -1 down, 0 not at all: then cell(null) is the heading
   * @param groups of {title: node or null, rows, parts}; `parts` are [number of a row, heading before it]
   */
  show(columns, groups) {
    this.columns = columns;
    this.groups = groups;
    if (!columns.some(({ key }) => key === this.sort?.key)) this.sort = null;
    const headings = columns.map((column) => this.heading(column));
    this.head.replaceChildren(el("tr", {}, ...headings));
    this.headings = headings.filter((heading) => heading.dataset.key);
    for (const body of [...this.table.tBodies]) body.remove();
    this.bodies = new Map();
    this.narrow(this.isGroup, this.isRow);
    this.order();
  }

  heading(column) {
    if (!column.first) return el("th", { scope: "col", class: column.class, title: column.title }, column.cell(null));
    const button = el("button", { type: "button", title: column.title, on: { click: () => this.sortBy(column) } },
      el("span", { class: "label" }, column.label), el("span", { class: "order", "aria-hidden": "true" }));
    return el("th", { scope: "col", class: column.class, "data-key": column.key }, button,
      column.note ? el("small", {}, column.note) : null);
  }

  sortBy(column) {
    const again = this.sort?.key === column.key;
    this.sort = { key: column.key, way: again ? -this.sort.way : column.first };
    this.order();
    say(`Sorted by ${column.label}, ${this.sort.way > 0 ? "ascending" : "descending"}`);
    this.onSort(this.sort);
  }

  /** Sort as an address says; a column that isn't there changes nothing. */
  sortLike(sort) {
    const column = sort && this.columns.find(({ key, first }) => first && key === sort.key);
    this.sort = column ? { key: sort.key, way: sort.way } : null;
    this.order();
  }

  /** Show some groups and some rows; rows stay as they are, and a group is drawn when it is first shown. */
  narrow(isGroup, isRow) {
    this.isGroup = isGroup;
    this.isRow = isRow;
    let last = null;
    for (const group of this.groups) {
      const some = isGroup(group) && group.rows.some(isRow);
      if (some && !this.bodies.has(group)) this.build(group);
      const built = this.bodies.get(group);
      if (!built) continue;
      if (last ? last.nextSibling !== built.body : this.head.nextSibling !== built.body) {
        (last ?? this.head).after(built.body);
      }
      last = built.body;
      built.body.hidden = !some;
      for (const [row, node] of built.rows) node.hidden = !isRow(row);
      for (const { node, rows } of built.parts) node.hidden = !rows.some(isRow);
    }
    if (!this.stopped?.checkVisibility()) this.stop([...this.reached()].find((thing) => thing.checkVisibility()));
  }

  build(group) {
    const above = group.title && el("tr", { class: "group" },
      el("th", { scope: "rowgroup", colspan: this.columns.length }, el("div", {}, group.title)));
    const rows = new Map(group.rows.map((row) => [row, this.row(row)]));
    const parts = (group.parts ?? []).map(([first, heading], i, all) => ({
      first: group.rows[first],
      rows: group.rows.slice(first, all[i + 1]?.[0]),
      node: el("tr", { class: "part" }, el("th", { scope: "rowgroup", colspan: this.columns.length }, heading)),
    }));
    const built = { body: el("tbody", {}, above), rows, parts };
    this.bodies.set(group, built);
    this.place(group, built);
    for (const thing of built.body.querySelectorAll("button, a")) thing.tabIndex = -1;
  }

  /** Put a group's rows into their order; headings of parts stand where nothing is sorted. */
  place(group, { body, rows, parts }) {
    const nodes = this.sorted(group.rows).flatMap((row) => {
      const part = this.sort ? null : parts.find(({ first }) => first === row);
      return part ? [part.node, rows.get(row)] : [rows.get(row)];
    });
    if (this.sort) for (const { node } of parts) node.remove();
    body.append(...nodes);
  }

  order() {
    const focused = this.table.contains(document.activeElement) ? document.activeElement : null;
    for (const heading of this.headings) {
      const way = heading.dataset.key === this.sort?.key ? this.sort.way : 0;
      if (way) heading.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
      heading.querySelector(".order").textContent = { 1: "▲", "-1": "▼", 0: "" }[way];
    }
    for (const [group, built] of this.bodies) this.place(group, built);
    focused?.focus({ preventScroll: true });
    this.stop([...this.reached()].find((thing) => thing.checkVisibility()));
  }

  row(row) {
    return el("tr", { class: row.class ?? null }, ...this.columns.map((column, i) =>
      el(i ? "td" : "th", { class: column.class, scope: i ? null : "row",
        "data-label": i && column.label ? column.label : null }, column.cell(row))));
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

  reached() {
    return this.table.querySelectorAll("tbody :is(button, a)");
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
    const rows = [...this.table.querySelectorAll("tbody:not([hidden]) tr:not([hidden])")];
    const step = key === "ArrowDown" ? 1 : -1;
    const column = here.closest("td, th").cellIndex;
    for (let i = rows.indexOf(row) + step; rows[i]; i += step) {
      const found = rows[i].cells[column]?.querySelector("button, a");
      if (found) return found;
    }
    return null;
  }
}

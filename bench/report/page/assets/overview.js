// One metric over all models and benchmarks.

function startOverview() {
  if (DATA.blocks.length < 2) {
    byId("overview").hidden = true;
    document.querySelector("nav a[href='#overview']").hidden = true;
    return;
  }
  const select = byId("overview-metric");
  fill(select, METRICS.map(({ label, better }, m) => [String(m), label + ARROWS[better]]));
  select.value = String(Math.max(0, METRICS.findIndex(({ name }) => name === "brier")));
  const grid = new Grid(byId("overview-table"), "One metric over all models and benchmarks");
  const show = () => grid.show(overviewColumns(Number(select.value)), [{ title: null, rows: overviewRows() }]);
  select.addEventListener("input", show);
  select.form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

/** A row for each method, with its line in each block; lines with settings of their own are rows of their own. */
function overviewRows() {
  const rows = new Map();
  for (const line of LINES) {
    if (!rows.has(line.name)) rows.set(line.name, { name: line.name, any: line, lines: new Map() });
    rows.get(line.name).lines.set(line.block.index, line);
  }
  return [...rows.values()].sort((a, b) => a.any.method - b.any.method);
}

function overviewColumns(m) {
  const method = {
    key: "method", label: "Method", first: 1, class: "name", value: (row) => row.name,
    cell: (row) => el("span", { class: "method" }, swatch(row.any), apart(row.name)),
  };
  return [method, ...DATA.blocks.map((block, b) => ({
    key: String(block.index),
    above: block.model,
    label: block.task + (block.aside ? ` (${block.aside})` : ""),
    class: `num metric${DATA.blocks[b - 1]?.model === block.model ? "" : " begins"}`,
    first: METRICS[m].better > 0 ? -1 : 1,
    value: (row) => row.lines.get(block.index)?.mean?.[m] ?? null,
    cell: (row) => {
      const line = row.lines.get(block.index);
      return line ? numbered(line, m, "none") : el("span", { class: "absent" }, DASH);
    },
  }))];
}

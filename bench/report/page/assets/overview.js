// One metric over all models and benchmarks.

function startOverview() {
  if (DATA.blocks.length < 2) {
    byId("overview").hidden = true;
    document.querySelector("nav a[href='#overview']").hidden = true;
    return;
  }
  const select = byId("overview-metric");
  fill(select, METRICS.map(({ name, label, better }) => [name, label + ARROWS[better]]));
  const grid = new Grid(byId("overview-table"), "One metric is shown for all methods, models and benchmarks.");
  const show = () => {
    const m = METRICS.findIndex(({ name }) => name === select.value);
    grid.show(overviewColumns(m), overviewGroups(m));
  };
  const restore = () => {
    const name = chosen("overview");
    select.value = METRICS.some((metric) => metric.name === name) ? name : DATA.headline;
    show();
  };
  select.addEventListener("input", () => {
    choose({ overview: select.value === DATA.headline ? null : select.value });
    show();
  });
  onChosen(restore);
  restore();
}

const columnOf = (block) => block.task + (block.aside ? ` (${block.aside})` : "");

/**
 * For each model a row for each method, the best mean over benchmarks first; lines with own settings have own rows.
 * Means over fewer benchmarks can't be compared with those over all, so that methods without some number come last.
 */
function overviewGroups(m) {
  const means = (row) => [...row.lines.values()].map((line) => line.mean?.[m] ?? null).filter((mean) => mean !== null);
  const mean = (row) => (means(row).length ? -METRICS[m].better * sum(means(row)) / means(row).length : Infinity);
  return [...new Set(DATA.blocks.map(({ model }) => model))].map((model) => {
    const rows = new Map();
    for (const line of LINES.filter(({ block }) => block.model === model)) {
      if (!rows.has(line.name)) rows.set(line.name, { name: line.name, any: line, lines: new Map() });
      rows.get(line.name).lines.set(columnOf(line.block), line);
    }
    const most = Math.max(...[...rows.values()].map((row) => means(row).length));
    const lacking = (row) => Number(means(row).length < most);
    const order = (a, b) => lacking(a) - lacking(b) || (mean(a) === mean(b) ? a.any.method - b.any.method : mean(a) - mean(b));
    return { title: apart(model, { class: "where" }), rows: [...rows.values()].sort(order) };
  });
}

function overviewColumns(m) {
  const method = {
    key: "method", label: "Method", first: 1, class: "name", value: (row) => row.name,
    cell: (row) => el("span", { class: "method" }, swatch(row.any), apart(row.name)),
  };
  return [method, ...[...new Set(DATA.blocks.map(columnOf))].map((column) => ({
    key: column,
    label: column,
    class: "num metric",
    first: METRICS[m].better > 0 ? -1 : 1,
    value: (row) => row.lines.get(column)?.mean?.[m] ?? null,
    cell: (row) => {
      const line = row.lines.get(column);
      return line ? numbered(line, m, "none") : el("span", { class: "absent" }, DASH);
    },
  }))];
}

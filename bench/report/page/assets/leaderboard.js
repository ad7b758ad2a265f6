// The table that stands on the page, sorted, filtered, with other columns, and ranked by another metric as it was told.

const TABLE = document.querySelector("#leaderboard-table table");
const NEEDS = ["logits", "states", "samples", "labels", "adapter"];
/** Whether anything is known of what methods need: of an audit's confidences, and of plugins, nothing is. */
const KNOWN = DATA.methods.some(({ needs }) => needs.length);
const CHOICES = ["model", "task", "query", "headline", "columns", "cost", ...(KNOWN ? NEEDS : [])];
const FEW_BLOCKS = 4;

/** Choices of the leaderboard that the address may hold, with what stands there where it holds none. */
const defaults = new Map();
const valueOf = (control) => (control.type === "checkbox" ? String(control.checked) : control.value);

/** Bodies of the table: their block, its rows by number, and headings of its parts by number. */
const BODIES = [...(TABLE?.tBodies ?? [])].map((body) => ({
  body, block: DATA.blocks[body.dataset.block],
  rows: new Map([...body.querySelectorAll("[data-line]")].map((row) => [Number(row.dataset.line), row])),
  parts: new Map([...body.querySelectorAll("[data-part]")].map((row) => [Number(row.dataset.part), row])),
}));
const isShownBlock = (block) => ["model", "task"].every((id) => ["*", `=${block[id]}`].includes(byId(id).value));

/** Whether a method is asked for: any of the words, anywhere in its name. */
function matches(line, query) {
  const words = query.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);
  return !words.length || words.some((word) => line.name.toLowerCase().includes(word));
}

/** Whether a method can be had with what is at hand, by what it reads of a model and the labels that it was told. */
function canBeHad(line) {
  const needed = [...DATA.methods[line.method].needs, ...(line.labels?.some((count) => count > 0) ? ["labels"] : [])];
  return needed.every((name) => byId(name)?.checked ?? true);
}

function startLeaderboard() {
  if (!TABLE) return;
  if (KNOWN) byId("needs").append("Show what needs", ...NEEDS.map((name) =>
    el("label", { class: "check" }, el("input", { id: name, type: "checkbox", checked: "" }), ` ${name}`)));
  const names = (key) => [...new Set(DATA.blocks.map((block) => block[key]))];
  for (const [id, all] of [["model", "All models"], ["task", "All benchmarks"]]) {
    setOptions(byId(id), [["*", all], ...names(id).map((name) => [`=${name}`, name])]);
  }
  setOptions(byId("headline"), Object.keys(DATA.headlines).map((name) =>
    [name, METRICS.find((metric) => metric.name === name).label]));
  setOptions(byId("columns"), DATA.sets.map(({ label }) => [label, label]));
  if (DATA.blocks.length > FEW_BLOCKS) byId("model").value = `=${DATA.blocks[0].model}`;
  for (const id of CHOICES) defaults.set(id, valueOf(byId(id)));
  for (const { block, rows } of BODIES) {
    for (const [i, row] of rows) {
      const name = row.querySelector(".name bdi");
      if (!block.lines[i].ok) continue;
      const press = () => openDetails(block.lines[i], METRICS.findIndex((metric) => metric.name === byId("headline").value));
      const button = el("button", { type: "button", class: "open", "data-cell": `${block.index}/${i}`, on: { click: press } });
      name.replaceWith(button);
      button.append(name);
    }
  }
  TABLE.addEventListener("click", ({ target }) => {
    const cell = target.closest("td[data-v][data-m]");
    if (!cell || target.closest("a")) return;
    openDetails(DATA.blocks[cell.closest("tbody").dataset.block].lines[cell.parentNode.dataset.line], Number(cell.dataset.m));
  });
  sortable(TABLE, (head, way) => {
    for (const { parts } of BODIES) for (const row of parts.values()) row.remove();
    setChoices({ sort: `${way > 0 ? "" : "-"}${head.dataset.key}` });
  });
  byId("model").form.addEventListener("input", ({ target }) => {
    const value = valueOf(target);
    setChoices({ [target.id]: value === defaults.get(target.id) ? null : value || "*" });
    if (target.id === "query") return applyFilters();
    if (target.id === "headline") setChoices({ sort: null }); // a table ranked anew stands in that order
    return renderTable();
  });
  const restore = () => {
    for (const id of CHOICES) setChoice(byId(id), getChoice(id));
    renderTable();
  };
  onAddressChange(restore);
  restore();
  byId("save-csv").addEventListener("click", () => {
    const rows = BODIES.flatMap(({ body, block }) => [...body.querySelectorAll("[data-line]")]
      .filter((row) => !body.hidden && !row.hidden).map((row) => block.lines[row.dataset.line].csv));
    save("leaderboard.csv", "text/csv", [0, ...rows.filter(Boolean)].map((k) => `${DATA.csv[k]}\n`).join(""));
  });
  byId("save-json").addEventListener("click", () => save("report.json", "application/json", byId("data").textContent));
}

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Set a control to what an address says; what it doesn't offer is its default. */
function setChoice(control, value) {
  if (control.type === "checkbox") control.checked = (value ?? "true") !== "false";
  else if (control.type === "search") control.value = value ?? "";
  else control.value = [...control.options].some((option) => option.value === value) ? value : defaults.get(control.id);
}

/** Columns, ranks, order and filters as they are chosen. */
function renderTable() {
  const headline = byId("headline").value;
  const { metrics } = DATA.sets.find(({ label }) => label === byId("columns").value);
  const shown = new Set([METRICS.findIndex(({ name }) => name === headline), ...metrics]);
  for (const cell of TABLE.querySelectorAll("[data-m]")) cell.hidden = !shown.has(Number(cell.dataset.m));
  for (const cell of TABLE.querySelectorAll(".cost")) cell.hidden = !byId("cost").checked;
  for (const item of byId("legend").children) {
    const { metric, by } = item.dataset;
    if (by) item.hidden = by !== headline;
    if (metric) item.hidden = !shown.has(METRICS.findIndex(({ name }) => name === metric));
  }
  for (const { body, block, rows, parts } of BODIES) {
    const { order, leads } = block.headlines[headline];
    const placed = new Set();
    for (const i of order) {
      const row = rows.get(i);
      const part = parts.get(DATA.methods[block.lines[i].method].part);
      if (part && !placed.has(part)) body.append(part);
      placed.add(part);
      body.append(row);
      row.classList.toggle("leads", leads.includes(i));
      rank(row, block.lines[i].rank?.[judgedBy(headline)], leads.includes(i));
    }
  }
  const [, minus, key] = /^(-?)(\w+)$/.exec(getChoice("sort") ?? "") ?? [];
  const head = [...TABLE.tHead.rows[0].cells].find((one) => one.dataset.key === key && !one.hidden);
  sortBy(TABLE, head ?? null, minus ? -1 : 1);
  if (head) for (const { parts } of BODIES) for (const row of parts.values()) row.remove();
  applyFilters();
}

function rank(row, value, isLeading) {
  const cell = row.querySelector(".rank");
  if (!cell) return;
  cell.textContent = value === undefined ? DASH : (isLeading ? DATA.words.leader : "") + value;
  if (value === undefined) delete cell.dataset.v;
  else cell.dataset.v = value;
}

/** Show the blocks and lines that are asked for. */
function applyFilters() {
  const query = byId("query").value;
  let lines = 0;
  for (const { body, block, rows, parts } of BODIES) {
    const visibleParts = new Set();
    for (const [i, row] of rows) {
      row.hidden = !matches(block.lines[i], query) || !canBeHad(block.lines[i]);
      if (!row.hidden) visibleParts.add(DATA.methods[block.lines[i].method].part);
      lines += isShownBlock(block) && !row.hidden ? 1 : 0;
    }
    for (const [part, row] of parts) row.hidden = !visibleParts.has(part);
    body.hidden = !isShownBlock(block) || !visibleParts.size;
  }
  byId("shown").textContent = lines
    ? `${count(lines)} of ${count(LINES.length)} lines. A method or a number opens its subjects and questions.`
    : "No method, model and benchmark match these filters.";
}

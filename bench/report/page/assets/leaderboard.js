// Methods by metrics, for each model and benchmark; each number leads to its subjects.

const labelled = ({ labels: [train, validation, gold] }) =>
  `${count(train)} training answers, ${count(validation)} validation answers, ${count(gold)} right answers of training`;

const TOTALS = {
  n: (line) => line.n,
  seeds: (line) => line.seeds.length,
  labels: (line) => sum(line.labels),
  generated: (line) => line.generated,
  parameters: (line) => line.parameters,
  tokens: (line) => line.tokens,
  seconds: (line) => line.seconds,
};
const EXACT = { labels: labelled, parameters: (line) => count(line.parameters), tokens: (line) => count(line.tokens) };

const SPREADS = [
  ["half", "± half of the interval", RATED, DATA.words.half],
  ["ci", "interval", RATED, "Beside a number stands the 95 % interval for other questions of these subjects."],
  ["none", "nothing", true, ""],
  ["std", "std over subjects", true, "Beside a number stands the standard deviation over subjects."],
  ["between", "std between seeds", SEEDED, "Beside a number stands the standard deviation between seeds."],
].filter(([, , there]) => there);

/** Swatch, name and footnotes of a line. */
function named(line) {
  return el("span", { class: "method" }, swatch(line), apart(DATA.methods[line.method].name),
    line.status === "ok" || line.status === "missing" ? null : el("small", { class: "tag" }, line.status),
    ...marks([...line.notes, ...(line.ok ? line.reasons : [])]));
}

const FIGURE_SPACE = "\u2007";

/** What stands beside the mean, null where it is not known; numbers of a column are padded to one width. */
function beside(line, m, spread) {
  if (spread === "ci") return line.ci?.[m] ? `[${line.ci[m].join(", ")}]` : null;
  return line[spread]?.[m] ?? null;
}

/** Characters of the longest thing beside a mean of a column. */
const widthOf = (m, spread) => Math.max(0, ...LINES.map((line) => beside(line, m, spread)?.length ?? 0));

function padded(line, m, spread, width) {
  const text = beside(line, m, spread);
  const full = (text ?? "").padStart(width, FIGURE_SPACE);
  return el("span", { class: text === null ? "beside void" : "beside" }, spread === "half" ? `± ${full}` : full);
}

const FLOOR = METRICS.findIndex(({ name }) => name === "ece_floor");
/** Signs after a number, each with its words. */
function signsOf(line, m) {
  const { name } = METRICS[m];
  return [
    ...(name === "ece" && line.calibrated ? [[DATA.words.calibrated, DATA.words.spoken.calibrated]] : []),
    ...(line.best[m] ? [[DATA.words.best[line.best[m]], `best, ${line.best[m]}`]] : []),
    ...(name === "brier" && line.worse ? [[DATA.words.worse, DATA.words.spoken.worse]] : []),
  ];
}

/** One number, as a button to its subjects; a dash with its footnote where there is none. */
function numbered(line, m, spread, width = 0) {
  if (!line.ok) return el("span", { class: "absent" }, DASH, ...marks(line.reasons));
  const missing = marks(line.remarks[m]);
  if (line.text[m] === null) return el("span", { class: "absent" }, DASH, ...missing);
  const signs = signsOf(line, m);
  const button = el("button", {
    type: "button",
    class: line.best[m] === "beyond chance" ? "value best" : "value",
    "data-cell": `${line.block.index}/${line.index}/${m}`,
    on: { click: () => go(line, m) },
  }, el("span", { class: "mean" }, line.text[m]), width ? padded(line, m, spread, width) : null,
  METRICS[m].name === "ece"
    ? el("span", { class: "floor" }, unseen(" floor "), ` / ${line.text[FLOOR] ?? DASH}`) : null,
  el("span", { class: "signs", "aria-hidden": "true" }, signs.map(([sign]) => sign).join("")),
  ...signs.map(([, said]) => unseen(`, ${said}`)));
  return el("span", { class: "cell" }, button, ...missing);
}

function metricColumn(m, spread) {
  const metric = METRICS[m];
  const width = widthOf(m, spread);
  return {
    key: metric.name,
    label: metric.label + (metric.name === "ece" ? "/floor" : "") + ARROWS[metric.better],
    note: metric.note,
    title: metric.about,
    class: "num metric",
    first: metric.better > 0 ? -1 : 1,
    value: (line) => (line.ok ? line.mean[m] : null),
    cell: (line) => numbered(line, m, spread, width),
  };
}

const rankOf = (line, headline) => line.rank?.[judgedBy(headline)] ?? null;

const leads = (line, headline) => line.block.headlines[headline].leads.includes(line.index);

const rankColumn = (headline) => ({
  key: "rank", label: "Rank", title: DATA.headlines[headline], class: "num rank", first: 1,
  value: (line) => rankOf(line, headline),
  cell: (line) => (rankOf(line, headline) === null ? DASH
    : (leads(line, headline) ? DATA.words.leader : "") + count(rankOf(line, headline))),
});

const costColumn = ({ key, label, title }) => ({
  key, label, title, class: `num cost ${key}`, first: key === "n" || key === "seeds" ? -1 : 1,
  value: (line) => (line.ok ? TOTALS[key](line) ?? null : null),
  cell: (line) => (line.costs?.[key] ? el("span", { title: EXACT[key]?.(line) ?? null }, line.costs[key]) : DASH),
});

const METHOD_COLUMN = {
  key: "method", label: "Method", first: 1, class: "name", value: (line) => line.name, cell: named,
};

function titleOf(block) {
  return el("span", {}, apart(block.name, { class: "where" }), " ",
    el("span", { class: "facts" }, block.facts.join(" ")));
}

/** Whether a method is asked for: any of the words, anywhere in its name. */
function matches(line, query) {
  const words = query.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);
  return !words.length || words.some((word) => line.name.toLowerCase().includes(word));
}

const FEW_BLOCKS = 4;
const CHOICES = ["model", "task", "query", "headline", "columns", "spread", "cost"];

/** Choices of the leaderboard that the address may hold, with what stands there where it holds none. */
const defaults = new Map();

const valueOf = (control) => (control.type === "checkbox" ? String(control.checked) : control.value);

function startLeaderboard() {
  const names = (key) => [...new Set(DATA.blocks.map((block) => block[key]))];
  for (const [id, all] of [["model", "All models"], ["task", "All benchmarks"]]) {
    fill(byId(id), [["*", all], ...names(id).map((name) => [`=${name}`, name])]);
  }
  fill(byId("headline"), Object.keys(DATA.headlines).map((name) =>
    [name, METRICS.find((metric) => metric.name === name).label]));
  fill(byId("columns"), DATA.sets.map(({ label }) => [label, label]));
  fill(byId("spread"), SPREADS.map(([value, text]) => [value, text]));
  if (DATA.blocks.length > FEW_BLOCKS) byId("model").value = `=${DATA.blocks[0].model}`;
  for (const id of CHOICES) defaults.set(id, valueOf(byId(id)));
  const grid = new Grid(byId("leaderboard-table"), DATA.words.caption, ({ key, way }) =>
    choose({ sort: `${way > 0 ? "" : "-"}${key}` }));
  const form = byId("model").form;
  form.addEventListener("input", ({ target }) => {
    const value = valueOf(target);
    choose({ [target.id]: value === defaults.get(target.id) ? null : value || "*" });
    showLeaderboard(grid);
    if (target.id === "headline") grid.sortLike(null); // a table ranked anew stands in that order
    if (grid.sort === null) choose({ sort: null });
  });
  const restore = () => {
    for (const id of CHOICES) setChoice(byId(id), chosen(id));
    showLeaderboard(grid);
    const [, minus, key] = /^(-?)(\w+)$/.exec(chosen("sort") ?? "") ?? [];
    grid.sortLike(key ? { key, way: minus ? -1 : 1 } : null);
  };
  onChosen(restore);
  restore();
}

/** Set a control to what an address says; what it doesn't offer is its default. */
function setChoice(control, value) {
  if (control.type === "checkbox") control.checked = (value ?? "true") !== "false";
  else if (control.type === "search") control.value = value ?? "";
  else control.value = [...control.options].some((option) => option.value === value) ? value : defaults.get(control.id);
}

/** Lines by the headline metric, and where their parts begin. */
function groupOf(block, headline) {
  const rows = block.headlines[headline].order.map((i) => block.lines[i]);
  const part = (line) => DATA.methods[line.method].part;
  const parts = DATA.parts.length < 2 ? [] : rows.map((line, i) => [i, DATA.parts[part(line)]])
    .filter(([i]) => !i || part(rows[i]) !== part(rows[i - 1]));
  return { block, title: titleOf(block), rows, parts };
}

/** Columns that are shown, with the metric that ranks. */
function metricsShown() {
  const { metrics } = DATA.sets.find(({ label }) => label === byId("columns").value);
  const first = METRICS.findIndex(({ name }) => name === byId("headline").value);
  return metrics.includes(first) ? metrics : [first, ...metrics];
}

const isShownBlock = (block) => ["model", "task"].every((id) => ["*", `=${block[id]}`].includes(byId(id).value));

function showLeaderboard(grid) {
  const [spread, headline] = ["spread", "headline"].map((id) => byId(id).value);
  const metrics = metricsShown();
  const drawn = [spread, headline, byId("cost").checked, byId("columns").value].join();
  if (grid.drawn !== drawn) {
    grid.drawn = drawn;
    for (const line of LINES) line.class = leads(line, headline) ? "leads" : null;
    grid.isGroup = ({ block }) => isShownBlock(block);
    grid.show([
      METHOD_COLUMN, ...(LINES.some((line) => rankOf(line, headline)) ? [rankColumn(headline)] : []),
      ...metrics.map((m) => metricColumn(m, spread)), ...(byId("cost").checked ? DATA.costs.map(costColumn) : []),
    ], DATA.blocks.map((block) => groupOf(block, headline)));
    const [, , , said] = SPREADS.find(([value]) => value === spread);
    byId("legend").replaceChildren(...words(metrics, said, headline).filter(Boolean).map((text) => el("li", {}, text)));
  }
  const query = byId("query").value;
  const found = new Set(LINES.filter((line) => matches(line, query)));
  grid.narrow(({ block }) => isShownBlock(block), (line) => found.has(line));
  const lines = sum(DATA.blocks.filter(isShownBlock).map((block) => block.lines.filter((line) => found.has(line)).length));
  byId("shown").textContent = lines
    ? `${count(lines)} of ${count(LINES.length)} lines. A number opens its subjects and questions.`
    : "No method, model and benchmark match these filters.";
}

/** What is shown now, line by line. */
function shownTable() {
  const headline = byId("headline").value;
  const lines = DATA.blocks.filter(isShownBlock).flatMap((block) => groupOf(block, headline).rows)
    .filter((line) => line.status !== "missing" && matches(line, byId("query").value));
  return { lines, metrics: metricsShown(), headline };
}

/** What the numbers, signs and columns shown mean, in the sentences of the other formats. */
function words(metrics, spread, headline) {
  const { mean, acc, signs, floor, calibration, groups, tests, labels } = DATA.words;
  const found = new Set(LINES.flatMap((line) =>
    metrics.flatMap((m) => (line.ok ? signsOf(line, m).map(([sign]) => sign) : []))));
  const shown = (...names) => metrics.some((m) => names.includes(METRICS[m].name));
  const ranked = LINES.some((line) => rankOf(line, headline));
  return [
    mean, DATA.words.dash, spread, shown("acc") ? acc : null, shown("ece") ? floor : null,
    ...signs.filter(([sign]) => found.has(sign)).map(([, sentence]) => sentence),
    shown("rmsce") ? calibration : null, groups, ...(ranked ? [tests, DATA.headlines[headline]] : []), labels,
  ];
}

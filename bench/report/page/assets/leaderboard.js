// Methods by metrics, for each model and benchmark; each number leads to its subjects.

const labelled = ({ labels: [train, validation, gold] }) =>
  `${count(train)} training answers, ${count(validation)} validation answers, ${count(gold)} right answers of training`;

const COSTS = [
  { key: "n", label: "n", title: "Questions", first: -1, value: (line) => line.n },
  { key: "seeds", label: "Seeds", title: "Runs that are ok, of all", first: -1, value: (line) => line.seeds.length,
    text: (line) => (line.seeds.length === line.runs ? String(line.runs) : `${line.seeds.length} of ${line.runs}`) },
  { key: "labels", label: "Labels seen", title: "Labelled answers that the method learned from", first: 1,
    value: (line) => (line.labels ? sum(line.labels) : null),
    hint: labelled },
  { key: "parameters", label: "Parameters", title: "Trained parameters", first: 1, value: (line) => line.parameters,
    text: (line) => compact(line.parameters), hint: (line) => count(line.parameters) },
  { key: "tokens", label: "Tokens", title: "Token positions that this method needs by itself, adapter training included",
    first: 1, value: (line) => line.tokens, text: (line) => compact(line.tokens), hint: (line) => count(line.tokens) },
  { key: "seconds", label: "Seconds", title: "Fitting and predicting, without reading the model",
    first: 1, value: (line) => line.seconds,
    text: (line) => (line.seconds < 0.05 ? "< 0.1" : tenths(line.seconds)) },
];

const SPREADS = [
  ["half", "± half of the interval", RATED,
    "Beside a number stands ± half the width of the 95 % interval for other questions of these subjects."],
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
const FLOORED = new Set(["ece"]);

/** What an ECE would be by chance. */
const floorOf = (line) => ` / ${line.text[FLOOR] ?? DASH}`;

/** Signs after a number, each with its words. */
function signsOf(line, m) {
  const { name } = METRICS[m];
  return [
    ...(name === "ece" && line.calibrated ? [[DATA.words.calibrated, "can't be told from a calibrated method's"]] : []),
    ...(line.best[m] ? [[DATA.words.best[line.best[m]], `best, ${line.best[m]}`]] : []),
    ...(name === "brier" && line.worse ? [[DATA.words.worse, "no better than a constant"]] : []),
  ];
}

/** One number, as a button to its subjects; a dash with its footnote where there is none. */
function numbered(line, m, spread, width = 0, signWidth = 0) {
  if (!line.ok) return el("span", { class: "absent" }, DASH, ...marks(line.reasons));
  const missing = marks(line.remarks[m]);
  if (line.text[m] === null) return el("span", { class: "absent" }, DASH, ...missing);
  const signs = signsOf(line, m);
  const button = el("button", {
    type: "button",
    class: line.best[m] === "beyond chance" ? "value best" : "value",
    "data-cell": `${line.block.index}/${line.block.lines.indexOf(line)}/${m}`,
    on: { click: () => go(line, m) },
  }, el("span", { class: "mean" }, line.text[m]), spread === "none" ? null : padded(line, m, spread, width),
  FLOORED.has(METRICS[m].name) ? el("span", { class: "floor" }, unseen(" floor "), floorOf(line)) : null,
  el("span", { class: "signs", "aria-hidden": "true", vars: { "--signs": String(signWidth) } },
    signs.map(([sign]) => sign).join("")),
  ...signs.map(([, said]) => unseen(`, ${said}`)));
  return el("span", { class: "cell" }, button, ...missing);
}

function metricColumn(m, spread) {
  const metric = METRICS[m];
  const width = widthOf(m, spread);
  const signWidth = Math.max(0, ...LINES.map((line) => (line.ok ? signsOf(line, m).length : 0)));
  return {
    key: metric.name,
    label: metric.label + (FLOORED.has(metric.name) ? "/floor" : "") + ARROWS[metric.better],
    title: metric.about,
    class: "num metric",
    first: metric.better > 0 ? -1 : 1,
    value: (line) => (line.ok ? line.mean[m] : null),
    cell: (line) => numbered(line, m, spread, width, signWidth),
  };
}

const RANK_COLUMN = {
  key: "rank", label: "Rank", title: "By Brier: 1 plus the number of methods that are significantly better",
  class: "num rank", first: 1, value: (line) => line.rank?.brier ?? null,
  cell: (line) => (line.rank?.brier ? count(line.rank.brier) : DASH),
};

function costColumn(column) {
  const text = column.text ?? ((line) => count(column.value(line)));
  return {
    ...column,
    class: "num cost",
    cell: (line) => {
      const there = (line.ok || column.key === "n") && column.value(line) !== null && column.value(line) !== undefined;
      return there ? el("span", { title: column.hint?.(line) ?? null }, text(line)) : DASH;
    },
    value: (line) => ((line.ok ? column.value(line) : null) ?? null),
  };
}

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

function startLeaderboard() {
  const names = (key) => [...new Set(DATA.blocks.map((block) => block[key]))];
  for (const [id, all] of [["model", "All models"], ["task", "All benchmarks"]]) {
    fill(byId(id), [["", all], ...names(id).map((name) => [`=${name}`, name])]);
  }
  fill(byId("columns"), DATA.sets.map(({ label }, i) => [String(i), label]));
  fill(byId("spread"), SPREADS.map(([value, text]) => [value, text]));
  if (DATA.blocks.length > FEW_BLOCKS) byId("model").value = `=${DATA.blocks[0].model}`;
  const grid = new Grid(byId("leaderboard-table"), "Leaderboard");
  const form = byId("model").form;
  const show = () => showLeaderboard(grid);
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

function showLeaderboard(grid) {
  const [model, task, spread] = ["model", "task", "spread"].map((id) => byId(id).value);
  const metrics = DATA.sets[Number(byId("columns").value)].metrics;
  const groups = DATA.blocks
    .filter((block) => (!model || `=${block.model}` === model) && (!task || `=${block.task}` === task))
    .map((block) => ({ title: titleOf(block), rows: block.lines.filter((line) => matches(line, byId("query").value)) }))
    .filter(({ rows }) => rows.length);
  const costs = byId("cost").checked ? COSTS.map(costColumn) : [];
  const ranks = RATED ? [RANK_COLUMN] : [];
  grid.show([METHOD_COLUMN, ...metrics.map((m) => metricColumn(m, spread)), ...ranks, ...costs], groups);
  const lines = sum(groups.map(({ rows }) => rows.length));
  byId("shown").textContent = lines
    ? `${count(lines)} of ${count(LINES.length)} lines`
    : "No method, model and benchmark match these filters.";
  const [, , , said] = SPREADS.find(([value]) => value === spread);
  byId("legend").textContent = [
    DATA.words.mean, said, ...words(metrics), "A number opens its subjects and questions.",
  ].filter(Boolean).join(" ");
}

/** What the signs and columns shown mean, in the sentences of the other formats. */
function words(metrics) {
  const { signs, floor, excess, groups, tests, ranks } = DATA.words;
  const found = new Set(LINES.filter((line) => line.ok).flatMap((line) =>
    metrics.flatMap((m) => signsOf(line, m).map(([sign]) => sign))));
  const shown = (...names) => metrics.some((m) => names.includes(METRICS[m].name));
  return [
    shown("ece") ? floor : null, ...signs.filter(([sign]) => found.has(sign)).map(([, sentence]) => sentence),
    shown("ece", "ece_debiased") ? excess : null, groups, ...(RATED ? [tests, ranks] : []),
  ];
}

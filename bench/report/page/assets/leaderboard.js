// Methods by metrics, for each model and benchmark; each number leads to its subjects.

const COSTS = [
  { key: "n", label: "n", title: "Questions", first: -1, value: (line) => line.n },
  { key: "seeds", label: "Seeds", title: "Runs that are ok, of all", first: -1, value: (line) => line.seeds.length,
    text: (line) => (line.seeds.length === line.runs ? String(line.runs) : `${line.seeds.length} of ${line.runs}`) },
  { key: "labels", label: "Labels seen", title: "Labelled answers that the method learned from", first: 1,
    value: (line) => (line.labels ? sum(line.labels) : null),
    hint: (line) => `${count(line.labels[0])} train, ${count(line.labels[1])} validation` },
  { key: "parameters", label: "Parameters", title: "Trained parameters", first: 1, value: (line) => line.parameters,
    text: (line) => compact(line.parameters), hint: (line) => count(line.parameters) },
  { key: "tokens", label: "Tokens", title: "Token positions that this method needs by itself, adapter training included",
    first: 1, value: (line) => line.tokens, text: (line) => compact(line.tokens), hint: (line) => count(line.tokens) },
  { key: "seconds", label: "Seconds", title: "Fitting and predicting, without reading the model",
    first: 1, value: (line) => line.seconds,
    text: (line) => (line.seconds < 0.05 ? "< 0.1" : tenths(line.seconds)) },
];

const SPREADS = [
  ["std", "± std over subjects", true, "standard deviation over subjects"],
  ["between", "± std between seeds", SEEDED, "standard deviation between seeds"],
  ["ci", "interval", RATED, "interval for these subjects and other questions"],
  ["none", "nothing", true, ""],
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
  return el("span", { class: text === null ? "beside void" : "beside" }, spread === "ci" ? full : `± ${full}`);
}

/** One number, as a button to its subjects; a dash with its footnote where there is none. */
function numbered(line, m, spread, width = 0) {
  if (!line.ok) return el("span", { class: "absent" }, DASH, ...marks(line.reasons));
  const missing = marks([line.undefined[m]]);
  if (line.text[m] === null) return el("span", { class: "absent" }, DASH, ...missing);
  const best = Boolean(line.best[m]);
  const sure = best && (!line.leads || Boolean(line.leads[m]));
  const rank = line.rank?.[METRICS[m].name];
  const button = el("button", {
    type: "button",
    class: `value${sure ? " best" : ""}${best && !sure ? " ahead" : ""}`,
    title: rank ? `rank ${count(rank)}` : null,
    "data-cell": `${line.block.index}/${line.block.lines.indexOf(line)}/${m}`,
    on: { click: () => go(line, m) },
  }, el("span", { class: "mean" }, line.text[m]), spread === "none" ? null : padded(line, m, spread, width),
  best ? unseen(sure ? ", best" : ", best mean, within chance") : null);
  return el("span", { class: "cell" }, button, ...missing);
}

function metricColumn(m, spread) {
  const metric = METRICS[m];
  const width = widthOf(m, spread);
  return {
    key: metric.name,
    label: metric.label + ARROWS[metric.better],
    title: metric.about,
    class: "num metric",
    first: metric.better > 0 ? -1 : 1,
    value: (line) => (line.ok ? line.mean[m] : null),
    cell: (line) => numbered(line, m, spread, width),
  };
}

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
    el("span", { class: "facts" }, block.facts.join(" · ")));
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
  grid.show([METHOD_COLUMN, ...metrics.map((m) => metricColumn(m, spread)), ...costs], groups);
  const lines = sum(groups.map(({ rows }) => rows.length));
  byId("shown").textContent = lines
    ? `${count(lines)} of ${count(LINES.length)} lines`
    : "No method, model and benchmark match these filters.";
  const [, , , said] = SPREADS.find(([value]) => value === spread);
  byId("legend").replaceChildren(
    `Macro mean over subjects${SEEDED ? " and seeds" : ""}${said ? `, beside it the ${said}` : ""}; `,
    "in percent, NLL in nats. ",
    el("span", { class: "value best" }, "Best"), " of its model and benchmark",
    ...(RATED ? [" beyond chance, or ", el("span", { class: "value ahead" }, "best mean"), " within chance"] : []),
    ". A number opens its subjects and questions.");
}

// Which method is better than which by the corrected tests: of one model and benchmark, or counted over all of them.

const COUNT_SIGNS = { better: ["+", "better"], tie: ["=", "can’t be distinguished"], worse: ["−", "worse"] };

/** Verdicts on two lines by name, one for each block in which both are ranked. */
function verdictsOn(blocks, name, first, second) {
  return blocks.map((block) => {
    const [a, b] = [first, second].map((one) => block.ranked(name).find((line) => line.name === one));
    return a && b ? pairBetween(block.pairs, name, a.place, b.place)?.verdict : undefined;
  }).filter((verdict) => verdict && verdict !== "none");
}

function countOf(verdicts) {
  const found = { better: 0, tie: 0, worse: 0 };
  for (const verdict of verdicts) found[verdict] += 1;
  return found;
}

/** Names of the ranked lines, with what they win, the most won first. */
function countRows(blocks, name) {
  const names = [...new Set(blocks.flatMap((block) => block.ranked(name).map((line) => line.name)))];
  const rows = names.map((own) => {
    const beside = new Map(names.filter((other) => other !== own)
      .map((other) => [other, countOf(verdictsOn(blocks, name, own, other))]));
    const total = { better: 0, tie: 0, worse: 0 };
    for (const each of beside.values()) for (const key of Object.keys(total)) total[key] += each[key];
    const line = blocks.flatMap((block) => block.ranked(name)).find((one) => one.name === own);
    return { name: own, line, beside, total };
  });
  return rows.sort((a, b) =>
    b.total.better - b.total.worse - (a.total.better - a.total.worse) || a.total.worse - b.total.worse);
}

function countCell(found, isOne) {
  const { better, tie, worse } = found;
  if (!(better + tie + worse)) {
    return el("td", { class: "count" }, el("span", { "aria-hidden": "true" }, "·"), unseen("no test"));
  }
  if (isOne) {
    const [verdict] = Object.keys(found).filter((key) => found[key]);
    const [sign, said] = COUNT_SIGNS[verdict];
    return el("td", { class: `count ${verdict}` }, el("span", { "aria-hidden": "true" }, sign), unseen(said));
  }
  const kind = better > worse ? "better" : better < worse ? "worse" : "tie";
  return el("td", { class: `count ${kind}` }, el("span", { "aria-hidden": "true" }, `${better}·${tie}·${worse}`),
    unseen(`better ${better}, not distinguished ${tie}, worse ${worse}`));
}

/** The matrix of a metric over some blocks, each with `ranked(metric name)`, its lines to count. */
function countTable(blocks, metric) {
  const rows = countRows(blocks, metric.name);
  const isOne = blocks.length === 1;
  const upright = (name) => el("th", { scope: "col", class: "upright" }, apart(name));
  return el("table", { class: "counts" },
    el("caption", {}, el("span", {}, isOne
      ? `By ${metric.label}, row against column: + better, = can’t be distinguished, − worse.`
      : `By ${metric.label}, row against column: better · can’t be distinguished · worse, counted over those of `
        + `${blocks.length} tables in which both have a rank.`)),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Method"), ...["Wins", "Ties", "Losses"].map(upright),
      ...rows.map(({ name }) => upright(name)))),
    el("tbody", {}, ...rows.map(({ name, line, beside, total }) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: "method" }, swatch(line), apart(name))),
      ...["better", "tie", "worse"].map((key) => el("td", { class: "num" }, count(total[key]))),
      ...rows.map((other) => (other.name === name
        ? el("td", { class: "count self" }, el("span", { "aria-hidden": "true" }, "╲"), unseen("itself"))
        : countCell(beside.get(other.name), isOne)))))));
}

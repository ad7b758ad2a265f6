// From a number to its subjects, and from there to questions.

/** What was pressed to come here; the table may have been drawn anew since, so by its name too. */
let opener = null;

/** The line whose panel is open. */
let opened = null;

const NO_QUESTION = { group: null, subject: null, question: null };

/** The name of a number in the address. */
function addressOf(line, m) {
  const { model, task, label } = line.block;
  const parts = [model, task, label, DATA.methods[line.method].name, line.variant, METRICS[m].name];
  return parts.map(encodeURIComponent).join("/");
}

function go(line, m) {
  const pressed = document.activeElement;
  opener = { pressed, name: pressed?.dataset?.cell };
  const same = line.block === opened?.block;
  choose({ open: addressOf(line, m), at: null, ...(same ? {} : NO_QUESTION) }, true);
  route();
}

/** Show the panel that the address names, or none. */
function route() {
  const name = chosen("open");
  for (const line of name ? LINES.filter(({ ok }) => ok) : []) {
    const m = METRICS.findIndex((_, i) => addressOf(line, i) === name);
    if (m >= 0) return open(line, m);
  }
  return close();
}

/** Close the panel, as the address then says. */
function shut() {
  choose({ open: null, ...NO_QUESTION }, true);
  close();
}

function close() {
  const panel = byId("details");
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  opened = null;
  const again = opener?.name && document.querySelector(`[data-cell="${opener.name}"]`);
  (opener?.pressed.isConnected ? opener.pressed : again || byId("leaderboard")).focus();
}

function open(line, m) {
  const panel = byId("details");
  const title = el("h3", { id: "details-title", tabindex: "-1" },
    swatch(line), apart(line.name), el("span", { class: "muted" }, " on "), apart(line.block.name));
  const select = el("select", { id: "details-metric" });
  fill(select, METRICS.map(({ label, better }, i) => [String(i), label + ARROWS[better]]));
  select.value = String(m);
  select.addEventListener("input", () => go(line, Number(select.value)));
  const closer = el("button", { type: "button", class: "shut", on: { click: shut } }, "Close");
  const asked = line.block.questions ? questionsOf(line) : null;
  const subjects = el("div", { class: "subjects" });
  panel.replaceChildren(el("div", { class: "panel-head" }, title, closer), summary(line, m),
    el("div", { class: "side" }, el("div", {}, el("h4", {}, "Reliability"), diagram(line)),
      el("div", { class: "wide" }, el("h4", {}, "Subjects"),
        el("div", { class: "controls" }, el("label", {}, "Metric ", select)), subjects)),
    asked?.node ?? "");
  const moved = panel.hidden || panel.dataset.line !== line.name + line.block.name;
  panel.hidden = false;
  opened = line;
  panel.dataset.line = line.name + line.block.name;
  new Grid(subjects, `This is the ${METRICS[m].label} of ${line.name} in each subject.`).show(
    subjectColumns(line, m, asked), [{ title: null, rows: subjectRows(line, m) }]);
  if (moved) panel.scrollIntoView({ block: "start" });
  (moved ? title : select).focus({ preventScroll: true });
  panel.querySelector(".question[data-at]")?.scrollIntoView({ block: "center" });
}

function summary(line, m) {
  const half = line.half?.[m] ? ` ± ${line.half[m]}` : "";
  const facts = [
    [METRICS[m].label, `${line.text[m] ?? DASH}${half}${METRICS[m].percent ? " %" : ""}`],
    ...signsOf(line, m).map(([sign, said]) => [sign, said]),
    ["Questions", line.n === null ? DASH : count(line.n)],
    [line.seeds.length > 1 ? "Seeds" : "Seed", line.seeds.join(", ")],
    ["Learned from", line.trained_on ? `${labelled(line)}; ${line.trained_on}` : "nothing"],
    ["Parameters", line.parameters === null ? DASH : count(line.parameters)],
    ["Tokens read", line.tokens === null ? DASH : count(line.tokens)],
    ["Tokens generated", line.generated === null ? DASH : count(line.generated)],
    ["Seconds", line.costs.seconds ?? DASH],
  ];
  if (line.between[m] !== null) facts.splice(1, 0, ["Std between seeds", line.between[m]]);
  if (line.std[m] !== null) facts.splice(1, 0, ["Std over subjects", line.std[m]]);
  if (line.ci?.[m]) facts.splice(1, 0, ["95 % interval", line.ci[m].join(" to ")]);
  if (METRICS[m].name === "ece") facts.splice(1, 0, ["ECE floor", line.text[FLOOR] ?? DASH]);
  const rank = rankOf(line, METRICS[m].name);
  const judge = METRICS.find(({ name }) => name === judgedBy(METRICS[m].name));
  if (rank) facts.push([`Rank by ${judge.label}`, count(rank)]);
  if (line.calibrated_p !== undefined) facts.push(["Perfect calibration", `p ${line.calibrated_p}`]);
  if (line.constant) facts.push(["Brier of a constant", line.constant]);
  facts.push(...line.training);
  const notes = [...line.notes, ...line.reasons, ...line.remarks[m]].map((k) => DATA.footnotes[k - 1]);
  return el("div", {}, el("dl", { class: "summary" }, ...facts.map(([name, text]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, apart(text))))),
  ...notes.map((note) => el("p", { class: "muted", dir: "auto" }, note)));
}

// --- subjects --------------------------------------------------------------------------------------------------------

function subjectRows(line, m) {
  const value = (other, s) => (other.subjects[m][s] === null ? null : other.subjects[m][s] / PARTS);
  const others = line.block.lines.filter((other) => other.ok && other !== line);
  const grouped = new Set(Object.values(line.block.questions?.groups ?? {}).flat());
  return line.block.subjects.map((name, s) => ({
    s, name, n: line.block.sizes[s], own: value(line, s),
    others: others.map((other) => ({ line: other, value: value(other, s) })).filter((other) => other.value !== null),
    here: [...grouped].filter((row) => line.block.questions.subject[row] === s).length,
  }));
}

/** Ends of a scale of four round steps that holds all values. */
function scaleOf(values) {
  const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  for (const step of [0.001, 0.002, 0.005, 0.01, 0.02, 0.025, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10]) {
    const from = Math.floor(low / step + 1e-9) * step;
    if (from + 4 * step >= high - 1e-9) return { from, step };
  }
  return { from: low, step: (high - low) / 4 };
}

function subjectColumns(line, m, asked) {
  const metric = METRICS[m];
  const scale = scaleOf(subjectRows(line, m).flatMap(({ own, others }) => [own, ...others.map(({ value }) => value)])
    .filter((value) => value !== null));
  const ticks = [0, 2, 4].map((k) => valued(metric, scale.from + k * scale.step).replace(/\.0+$/, ""));
  const marked = ticks.map((tick) => el("span", {}, tick));
  return [
    { key: "subject", label: "Subject", first: 1, class: "name",
      value: ({ name }) => name, cell: ({ name }) => apart(name) },
    { key: "n", label: "n", first: -1, class: "num",
      value: ({ n }) => n, cell: ({ n }) => (n === null ? DASH : count(n)) },
    { key: "value", label: metric.label + ARROWS[metric.better], first: metric.better > 0 ? -1 : 1, class: "num",
      value: ({ own }) => own, cell: ({ own }) => valued(metric, own) },
    { key: "dots", label: "", title: "This method, and the others paler", first: 0, class: "dots",
      cell: (row) => (row ? strip(row, line, metric, scale) : el("span", { class: "ticks" }, ...marked)) },
    { key: "here", label: "Questions", title: "Questions of this subject on this page", first: -1, class: "num",
      value: ({ here }) => here, cell: (row) => toQuestions(row, asked) },
  ];
}

function toQuestions({ s, name, here }, asked) {
  if (!here || !asked) return "0";
  const said = `${here} questions of ${name}`;
  return el("button", { type: "button", class: "quiet", "aria-label": said, on: { click: () => asked.show(s) } },
    String(here));
}

/** A dot for each method on one scale, this one's filled. */
function strip({ own, others }, line, metric, scale) {
  const dot = (value, of, kind) => el("span", {
    class: kind, title: `${of.name} ${valued(metric, value)}`,
    vars: { "--c": of.colour, "--x": String((value - scale.from) / (4 * scale.step)) },
  });
  const values = others.map(({ value }) => value);
  const range = values.length
    ? `, others ${valued(metric, Math.min(...values))} to ${valued(metric, Math.max(...values))}` : "";
  return el("div", { class: "strip", role: "img", "aria-label": `${line.name} ${valued(metric, own)}${range}` },
    ...others.map(({ line: other, value }) => dot(value, other, "dot")),
    own === null ? null : dot(own, line, "dot own"));
}

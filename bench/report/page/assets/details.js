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

function openDetails(line, m) {
  const pressed = document.activeElement;
  opener = { pressed, name: pressed?.dataset?.cell };
  const same = line.block === opened?.block;
  setChoices({ open: addressOf(line, m), at: null, ...(same ? {} : NO_QUESTION) }, true);
  openFromAddress();
}

/** Show the panel that the address names, or none. */
function openFromAddress() {
  const name = getChoice("open");
  for (const line of name ? LINES.filter(({ ok }) => ok) : []) {
    const m = METRICS.findIndex((_, i) => addressOf(line, i) === name);
    if (m >= 0) return showDetails(line, m);
  }
  return hideDetails();
}

/** Close the panel, as the address then says. */
function closeDetails() {
  setChoices({ open: null, ...NO_QUESTION }, true);
  hideDetails();
}

function hideDetails() {
  const panel = byId("details");
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  opened = null;
  const again = opener?.name && document.querySelector(`[data-cell="${opener.name}"]`);
  (opener?.pressed.isConnected ? opener.pressed : again || byId("leaderboard")).focus();
}

function showDetails(line, m) {
  const panel = byId("details");
  const title = el("h3", { id: "details-title", tabindex: "-1" },
    swatch(line), isolate(line.name), el("span", { class: "muted" }, " on "), isolate(line.block.name));
  const select = el("select", { id: "details-metric" });
  setOptions(select, METRICS.map(({ label, better }, i) => [String(i), label + ARROWS[better]]));
  select.value = String(m);
  select.addEventListener("input", () => openDetails(line, Number(select.value)));
  const closer = el("button", { type: "button", class: "shut", on: { click: closeDetails } }, "Close");
  const questionPanel = line.block.questions ? questionsOf(line) : null;
  panel.replaceChildren(el("div", { class: "panel-head" }, title, closer), summary(line, m),
    el("h4", {}, "Reliability"), diagramOf(line), el("h4", {}, "Subjects"),
    el("div", { class: "controls" }, el("label", {}, "Metric ", select)),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Subjects" }, subjectTable(line, m, questionPanel)),
    questionPanel?.node ?? "");
  const moved = panel.hidden || panel.dataset.line !== line.name + line.block.name;
  panel.hidden = false;
  opened = line;
  panel.dataset.line = line.name + line.block.name;
  if (moved) panel.scrollIntoView({ block: "start" });
  (moved ? title : select).focus({ preventScroll: true });
  panel.querySelector(".question[data-at]")?.scrollIntoView({ block: "center" });
}

/** The diagram that stands among all of them, once more; what its drawing refers to is copied under other names. */
function diagramOf(line) {
  const figure = [...document.querySelectorAll(`#reliability [data-block="${line.block.index}"] figure`)]
    .find(({ dataset }) => dataset.method === line.name);
  if (!figure) return el("p", { class: "muted" }, "Not drawn on this page.");
  const copy = figure.querySelector("svg").cloneNode(true);
  for (const node of copy.querySelectorAll("[id], [href], [clip-path]")) {
    for (const name of ["id", "href", "clip-path"]) {
      const value = node.getAttribute(name);
      if (value) node.setAttribute(name, value.replace(/^(url\()?(#?)/, "$1$2copy-"));
    }
  }
  return copy;
}

/** What stands after a number, with its words. */
function signsOf(line, m) {
  const cell = document.querySelector(`#leaderboard-table tbody[data-block="${line.block.index}"] `
    + `tr[data-line="${line.index}"] td[data-m="${m}"]`);
  const spoken = [...(cell?.querySelectorAll(".signs ~ .hidden") ?? [])];
  return spoken.map((node, i) => [[...cell.querySelector(".signs").textContent][i], node.textContent.slice(2)]);
}

const labelCounts = ({ labels: [train, validation, gold] }) =>
  `${count(train)} training answers, ${count(validation)} validation answers, ${count(gold)} right answers of training`;

function summary(line, m) {
  const half = line.half?.[m] ? ` ± ${line.half[m]}` : "";
  const facts = [
    [METRICS[m].label, `${line.text[m] ?? DASH}${half}${METRICS[m].percent ? " %" : ""}`],
    ...signsOf(line, m).map(([sign, words]) => [sign, words]),
    ["Questions", line.n === null ? DASH : count(line.n)],
  ];
  if (!DATA.audit) {
    facts.push(
      [line.seeds.length > 1 ? "Seeds" : "Seed", line.seeds.join(", ")],
      ["Learned from", line.trained_on ? `${labelCounts(line)}; ${line.trained_on}` : "nothing"],
      ["Parameters", line.parameters === null ? DASH : count(line.parameters)],
      ["Tokens read", line.tokens === null ? DASH : count(line.tokens)],
      ["Tokens generated", line.generated === null ? DASH : count(line.generated)],
      ["Seconds", line.seconds === null ? DASH : count(line.seconds)],
    );
  }
  if (line.between[m] !== null) facts.splice(1, 0, ["Std between seeds", line.between[m]]);
  if (line.std[m] !== null) facts.splice(1, 0, ["Std over subjects", line.std[m]]);
  if (line.ci?.[m]) facts.splice(1, 0, ["95 % interval", line.ci[m].join(" to ")]);
  if (METRICS[m].name === "ece") {
    facts.splice(1, 0, ["ECE floor", line.text[METRICS.findIndex(({ name }) => name === "ece_floor")] ?? DASH]);
  }
  const judge = METRICS.find(({ name }) => name === judgedBy(METRICS[m].name));
  const place = line.rank?.[judge.name];
  if (place) facts.push([`Rank by ${judge.label}`, count(place)]);
  if (line.calibrated_p !== undefined) facts.push(["Perfect calibration", `p ${line.calibrated_p}`]);
  if (line.constant) facts.push(["Brier of a constant", line.constant]);
  facts.push(...line.training);
  const notes = [...line.notes, ...line.reasons, ...line.remarks[m]].map((k) => DATA.footnotes[k - 1]);
  return el("div", {}, el("dl", { class: "summary" }, ...facts.map(([name, text]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, isolate(text))))),
  ...notes.map((note) => el("p", { class: "muted", dir: "auto" }, note)));
}

// --- subjects --------------------------------------------------------------------------------------------------------

/** Values of all lines in each subject, this one first, with the questions that the page has of each. */
function subjectTable(line, m, questionPanel) {
  const { block } = line;
  const metric = METRICS[m];
  const others = block.headlines[DATA.headline].order.map((i) => block.lines[i]).filter((other) => other.ok && other !== line);
  const grouped = [...new Set(Object.values(block.questions?.groups ?? {}).flat())];
  const heads = ["Subject", "n", "Questions", `${headingOf(metric)} ${line.name}`, ...others.map(({ name }) => name)];
  const number = (text, label) => el("td", { class: "num", "data-label": label, "data-v": numberOf(text) }, text ?? DASH);
  const rows = block.subjects.map((name, s) => {
    const here = grouped.filter((row) => block.questions.subject[row] === s).length;
    const opener = el("button", { type: "button", class: "quiet", "aria-label": `${here} questions of ${name}`,
      on: { click: () => questionPanel.show(s) } }, String(here));
    const size = block.sizes[s];
    return el("tr", {}, el("th", { scope: "row", class: "name" }, isolate(name)),
      number(size === null ? null : count(size), "n"),
      el("td", { class: "num", "data-label": "Questions", "data-v": here }, here && questionPanel ? opener : "0"),
      ...[line, ...others].map((other) => number(other.subjects[m][s], other.name)));
  });
  const table = el("table", { class: "cards subjects" },
    el("caption", { class: "hidden" }, `This is the ${metric.label} of ${line.name} in each subject.`),
    el("thead", {}, el("tr", {}, ...heads.map((text, k) =>
      el("th", { scope: "col", class: k ? "num" : "name", "data-first": k > 2 ? -metric.better || 1 : 1 }, text)))),
    el("tbody", {}, ...rows));
  sortable(table);
  return table;
}

/** What a text of a number is sorted by. */
const numberOf = (text) => (text === null ? null : text.replaceAll(",", "").replace("−", "-"));

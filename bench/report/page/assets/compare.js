// The section that compares methods: its choices, which stand in the address, and its parts.

const COMPARED = DATA.blocks.filter((block) => block.pairs);
const ALL_KINDS = "all";

/** Recalibration of a line, after the + in its method's name; empty where there is none. */
const kindOf = (line) => DATA.methods[line.method].name.split("+").slice(1).join("+");

function startCompare() {
  const section = byId("compare");
  const title = el("h2", { id: "compare-title" }, "Comparison");
  if (!COMPARED.length) {
    section.replaceChildren(title, el("p", { class: "muted" }, "No two methods were tested against each other here."));
    return;
  }
  for (const block of COMPARED) {
    block.tested = block.pairs.columns.map((column, place) => {
      const line = block.lines.find((one) => one.column === column);
      return Object.assign(line, { place, kind: kindOf(line) });
    });
    block.kinds = [...new Set(block.tested.map(({ kind }) => kind))];
  }
  const selects = {};
  const select = (key, label) => {
    selects[key] = el("select", { id: `compare-${key}`, on: { input: () => pick({ [key]: selects[key].value }) } });
    return el("label", {}, label, " ", selects[key]);
  };
  const form = (label, ...controls) => el("form", { class: "controls", "aria-label": label }, ...controls);
  const kinds = select("methods", "Methods");
  const places = Object.fromEntries(["forest", "counts", "pareto", "disagreements", "left"].map((name) =>
    [name, el("div", { id: `compare-${name}-place`, class: "part" })]));
  places.name = el("bdi");
  section.replaceChildren(title,
    form("Choices of the comparison", select("block", "Model and benchmark"), select("metric", "Metric"), kinds,
      select("reference", "Reference")),
    el("h3", {}, "Differences to ", places.name), places.forest,
    el("p", { class: "muted legend" }, "Press a method to make it the reference. The sign is that of ",
    el("code", {}, "bench table --compare METHOD,REFERENCE"),
    ". The interval is for other questions of these subjects and holds for a pair chosen beforehand; "
      + "p is corrected for all pairs tested together. Filled points and the words better or worse mean p "
      + "corrected below 0.05, hollow points that the two can’t be distinguished."),
    places.left,
    el("h3", {}, "Wins, ties and losses"),
    form("Choice of what is counted", select("over", "Counted over")), places.counts,
    el("h3", {}, "Quality against cost"), form("Choice of the cost", select("cost", "Cost")), places.pareto,
    el("h3", {}, "Where two methods disagree"), form("Choice of the other method", select("other", "Reference beside")),
    places.disagreements);
  const draw = () => drawCompare(comparison(), selects, places, kinds, pick);
  function pick(values) {
    const keys = Object.entries(values).map(([key, value]) => [`compare-${key}`, value]);
    choose(Object.fromEntries(keys));
    draw();
  }
  onChosen(draw);
  draw();
}

/** What the address chooses, or the default where it chooses nothing that is there. */
function comparison() {
  const one = (key, values, otherwise) => {
    const wanted = chosen(`compare-${key}`);
    return values.includes(wanted) ? wanted : otherwise;
  };
  const names = COMPARED.map(({ name }) => name);
  const block = COMPARED[names.indexOf(one("block", names, names[0]))];
  const tested = Object.keys(block.pairs.metrics);
  const headline = judgedBy(DATA.headline);
  const metricName = one("metric", tested, tested.includes(headline) ? headline : tested[0]);
  const m = METRICS.findIndex(({ name }) => name === metricName);
  const kind = one("methods", [...block.kinds.map((name) => name || "none"), ALL_KINDS], block.kinds[0] || "none");
  const isShown = (line) => kind === ALL_KINDS || (line.kind || "none") === kind;
  const lines = block.tested.filter(isShown);
  for (const line of lines) line.isRanked = line.rank?.[metricName] !== undefined;
  const best = block.tested[block.pairs.best[kind === ALL_KINDS ? block.kinds[0] : kind === "none" ? "" : kind]];
  const reference = lines.find(({ name }) => name === one("reference", lines.map((line) => line.name), null))
    ?? best ?? lines[0];
  const others = lines.filter((line) => line !== reference);
  const other = others.find(({ name }) => name === one("other", others.map((line) => line.name), null))
    ?? others.find((line) => line === best) ?? nextBest(others, m);
  for (const each of COMPARED) {
    each.ranked = (name) => each.tested.filter((line) => isShown(line) && line.rank?.[name] !== undefined);
  }
  return {
    block, pairs: block.pairs, metric: METRICS[m], m, kind, lines, reference, other, others,
    every: block.lines.filter((line) => isShown({ kind: kindOf(line) })),
    over: one("over", ["all"], "one"), cost: one("cost", PARETO_COSTS.map(([key]) => key), PARETO_COSTS[0][0]),
  };
}

/** The best mean of the ranked lines, or of all where none is ranked. */
const nextBest = (lines, m) => [...lines].sort((a, b) => b.isRanked - a.isRanked
  || METRICS[m].better * ((b.mean[m] ?? 0) - (a.mean[m] ?? 0)))[0];

function drawCompare(view, selects, places, kinds, pick) {
  const { block, metric, lines, reference, other } = view;
  const offer = (key, options, value) => {
    fill(selects[key], options);
    selects[key].value = value;
    selects[key].disabled = options.length < 2;
  };
  const lineNames = (some) => some.map(({ name }) => [name, name]);
  const kindNames = block.kinds.map((kind) =>
    [kind || "none", kind ? `with ${kind} recalibration` : "without recalibration"]);
  offer("block", COMPARED.map(({ name }) => [name, name]), block.name);
  offer("metric", Object.keys(block.pairs.metrics).map((name) => {
    const found = METRICS.find((one) => one.name === name);
    return [name, found.label + ARROWS[found.better]];
  }), metric.name);
  offer("methods", block.kinds.length > 1 ? [...kindNames, [ALL_KINDS, "all"]] : kindNames, view.kind);
  kinds.hidden = block.kinds.length < 2;
  offer("reference", lineNames(lines), reference.name);
  const every = COMPARED.length > 1 ? [["all", `all ${COMPARED.length} tables`]] : [];
  offer("over", [["one", block.name], ...every], view.over);
  offer("cost", PARETO_COSTS.map(([key, label]) => [key, label]), view.cost);
  offer("other", lineNames(view.others), other?.name ?? "");
  places.name.textContent = reference.name;
  const hadFocus = document.activeElement?.closest?.("#compare-forest-place") !== null;
  const press = (name) => {
    pick({ reference: name });
    say(`Differences to ${name}`);
  };
  places.forest.replaceChildren(forestTable(view, press));
  if (hadFocus) places.forest.querySelector("[aria-pressed=true]").focus();
  const without = absentFrom(view);
  const absent = `Not compared: ${without.join("; ")}.`;
  places.left.replaceChildren(...[without.length ? absent : "", ...onCalibration(view)].filter(Boolean)
    .map((text) => el("p", { class: "muted legend" }, text)));
  places.counts.replaceChildren(...countPart(view));
  showPareto(view, view.cost, places.pareto);
  places.disagreements.replaceChildren(disagreementLists(reference, other));
}

/** Lines that are in no pair, and why. */
function absentFrom({ block, pairs, every }) {
  const why = new Map(pairs.untested);
  return every.filter((line) => !block.tested.includes(line)).map((line) => {
    const reason = line.ok ? why.get(line.column) : line.reasons.map((k) => DATA.footnotes[k - 1]).join(", ");
    return `${line.name} (${reason})`;
  });
}

/** What a difference in calibration is, and whom a win in it doesn't make a leader. */
function onCalibration({ metric, lines, pairs: { fronts } }) {
  if (metric.name !== "rmsce") return [];
  const competing = new Set(fronts.rmsce.competing);
  const others = lines.filter((line) => line.isRanked && !competing.has(line.place)).map(({ name }) => name);
  return [DATA.words.calibration, others.length
    ? `Never leading in calibration, as they don’t order answers or rest on other labels: ${others.join(", ")}.` : ""];
}

function countPart({ block, metric, over, lines }) {
  const blocks = (over === "all" ? COMPARED : [block]).filter((each) => each.ranked(metric.name).length);
  const unranked = over === "all" ? [] : lines.filter((line) => !line.isRanked).map(({ name }) => name);
  const left = unranked.length
    ? el("p", { class: "muted legend" }, `Not counted, without a rank: ${unranked.join(", ")}.`) : "";
  if (!blocks.length) return [el("p", { class: "muted" }, `No method has a rank by ${metric.label} here.`)];
  const table = countTable(blocks, metric);
  const region = { class: "wide", role: "region", "aria-label": "Wins, ties and losses", tabindex: "0" };
  return [el("div", region, table), left];
}

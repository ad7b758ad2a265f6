// Reliability diagrams: each bin tells its counts and values when it is pointed at or reached with the arrow keys.

const PLOT = { width: 320, left: 38, right: 307, top: 8, bottom: 214, floor: 284, ceiling: 230 };
const SHOWN_FIRST = 4;
/** Answers below which a bin is dimmed and joined to no other. */
const FEW = 5;

const across = (value) => PLOT.left + value * (PLOT.right - PLOT.left);
const upward = (value) => PLOT.bottom - value * (PLOT.bottom - PLOT.top);

/** The bins of a line that hold answers. */
function binsOf(line) {
  const { n, hits, confidence } = line.bins;
  const all = n.map((size, j) => ({
    j, size, hits: hits[j], from: j / n.length, to: (j + 1) / n.length,
    confidence: confidence[j] / PARTS,
    share: size ? hits[j] / size : null,
    few: size < FEW,
    interval: size ? wilson(hits[j], size) : null,
  }));
  return all.filter(({ size }) => size);
}

function told(bin) {
  const range = `${bin.from.toFixed(2).replace(/0$/, "")}–${bin.to.toFixed(2).replace(/0$/, "")}`;
  const [low, high] = bin.interval.map((end) => (100 * end).toFixed(1));
  return `${range}: ${count(bin.size)} answers, ${count(bin.hits)} right. Mean confidence ${percent(bin.confidence)}, `
    + `right ${percent(bin.share)} (${low}–${high} %).${bin.few ? " Dimmed: fewer than five answers." : ""}`;
}

/** Numbers of what is drawn. */
function summed(line) {
  const { ece, mcb } = line.curve;
  const several = line.seeds.length > 1;
  return `ECE ${ece} % and Brier’s miscalibration part ${mcb} %, of the answers of all subjects`
    + `${several ? " and seeds" : ""} together. `
    + `${count(line.n)} answers in ${binsOf(line).length} of ${line.bins.n.length} bins`
    + `${several ? `, mean of ${line.seeds.length} seeds` : ""}.`;
}

const SCALELESS = "Only an order: these scores have no scale, so there is no confidence that could be compared with "
  + "how often answers are right. AUROC and the metrics of coverage say how good the order is.";

/** The figure of one line. */
function diagram(line) {
  const named = el("figcaption", {}, swatch(line), apart(line.name),
    line.curve.leads ? el("small", { class: "tag" }, "leading") : null);
  const words = () => [el("p", { class: "scaleless", vars: { "--c": line.colour } }, SCALELESS)];
  const inside = line.bins.n.length ? charted(line) : words();
  return el("figure", { class: "reliability", "data-method": line.name }, named, ...inside);
}

/** The drawing of a line with confidences, and the text below. */
function charted(line) {
  const bins = binsOf(line);
  const readout = el("p", { class: "readout", "aria-live": "polite" }, summed(line));
  const chart = drawn("svg", {
    viewBox: `0 0 ${PLOT.width} ${PLOT.floor + 28}`, class: "diagram", role: "group", vars: { "--c": line.colour },
    "aria-label": `Reliability of ${line.name}: isotonic curve, 95 % band, and ${bins.length} bins; `
      + "arrow keys move between them",
  }, ...axes(), ...curved(line.curve), ...bins.flatMap(pointed), ...paths(bins),
  ...bins.map((bin) => dotted(bin, bins)), ...histogram(bins));
  const targets = bins.map((bin, i) => target(bin, i, line, readout));
  chart.append(...targets);
  chart.addEventListener("keydown", (event) => walk(event, targets));
  return [chart, readout];
}

/** The isotonic curve on its consistency band; a single confidence is a short stroke. */
function curved({ confidence, rate, low, high }) {
  const wide = confidence.length > 1 ? confidence : [confidence[0] - 60, confidence[0] + 60];
  const at = (values) => wide.map((x, i) => `${across(x / PARTS)},${upward((values[i] ?? values[0]) / PARTS)}`);
  return [
    drawn("polygon", { class: "band", points: [...at(high), ...at(low).reverse()].join(" ") }),
    drawn("polyline", { class: "curve", points: at(rate).join(" ") }),
  ];
}

function axes() {
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const label = (x, y, text, anchor) => drawn("text", { x, y, "text-anchor": anchor, class: "tick" }, text);
  return [
    ...ticks.map((t) => drawn("line", { x1: across(0), x2: across(1), y1: upward(t), y2: upward(t), class: "rule" })),
    ...ticks.map((t) => label(PLOT.left - 6, upward(t) + 3.5, String(100 * t), "end")),
    ...ticks.map((t) => label(across(t), PLOT.floor + 13, String(100 * t), "middle")),
    drawn("line", { x1: across(0), y1: upward(0), x2: across(1), y2: upward(1), class: "diagonal" }),
    drawn("line", { x1: across(0), x2: across(1), y1: PLOT.floor, y2: PLOT.floor, class: "base" }),
    label(across(0.5), PLOT.floor + 23, "confidence, %", "middle"),
    drawn("text", {
      transform: `translate(9 ${upward(0.5)}) rotate(-90)`, "text-anchor": "middle", class: "tick",
    }, "right, %"),
  ];
}

const dimmed = (name, bin) => (bin.few ? `${name} few` : name);

/** Whisker of a bin, and how far it is from the diagonal. */
function pointed(bin) {
  const x = across(bin.confidence);
  return [
    drawn("line", { x1: x, x2: x, y1: upward(bin.interval[0]), y2: upward(bin.interval[1]), class: dimmed("whisker", bin) }),
    drawn("line", { x1: x, x2: x, y1: upward(bin.confidence), y2: upward(bin.share), class: dimmed("gap", bin) }),
  ];
}

/** Lines through neighbouring bins that have enough answers; bins with few end a line. */
function paths(bins) {
  const runs = [[]];
  for (const bin of bins) {
    if (bin.few) runs.push([]);
    else runs.at(-1).push(bin);
  }
  return runs.filter((run) => run.length > 1).map((run) => drawn("polyline", {
    class: "path", points: run.map((b) => `${across(b.confidence)},${upward(b.share)}`).join(" "),
    "data-bins": run.map(({ j }) => j).join(" "),
  }));
}

function dotted(bin, bins) {
  const most = Math.max(...bins.map(({ size }) => size));
  return drawn("circle", {
    cx: across(bin.confidence), cy: upward(bin.share), class: dimmed("point", bin), "data-bin": bin.j,
    r: (2.5 + 5 * Math.sqrt(bin.size / most)).toFixed(1),
  });
}

/** Answers of each bin below the diagram; right ones filled. */
function histogram(bins) {
  const most = Math.max(...bins.map(({ size }) => size));
  const scale = (PLOT.floor - PLOT.ceiling) / most;
  return bins.flatMap((bin) => {
    const x = across(bin.from) + 1;
    const width = across(bin.to) - across(bin.from) - 2;
    const [all, right] = [bin.size * scale, bin.hits * scale];
    return [
      drawn("rect", { x, width, y: PLOT.floor - all, height: all, class: "wrong" }),
      drawn("rect", { x, width, y: PLOT.floor - right, height: right, class: "right" }),
    ];
  });
}

function target(bin, i, line, readout) {
  const tell = () => { readout.textContent = told(bin); };
  const still = () => { readout.textContent = summed(line); };
  return drawn("rect", {
    x: across(bin.from), width: across(bin.to) - across(bin.from), y: PLOT.top, height: PLOT.floor - PLOT.top,
    class: "target", tabindex: i ? "-1" : "0", role: "img", "aria-label": told(bin), "data-bin": bin.j,
    on: { pointerenter: tell, pointerleave: still, focus: tell, blur: still },
  });
}

/** Arrow keys within one diagram, which is one tab stop. */
function walk(event, targets) {
  const here = targets.indexOf(event.target);
  const steps = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: targets.length - 1 };
  if (here < 0 || !(event.key in steps)) return;
  event.preventDefault();
  const next = targets[steps[event.key]];
  if (!next) return;
  for (const other of targets) other.setAttribute("tabindex", other === next ? "0" : "-1");
  next.focus();
}

// Choices: which block, and which methods of all blocks; without a choice, the first of each block.

const BLOCK_KEY = "reliability-of";
const METHODS_KEY = "reliability";

function startReliability() {
  const select = byId("reliability-block");
  fill(select, DATA.blocks.map((block) => [String(block.index), block.name]));
  select.addEventListener("input", () => {
    const block = DATA.blocks[Number(select.value)];
    choose({ [BLOCK_KEY]: block.index ? block.name : null });
    showReliability();
  });
  const show = () => {
    const named = DATA.blocks.find(({ name }) => name === chosen(BLOCK_KEY));
    select.value = String((named ?? DATA.blocks[0])?.index ?? "");
    showReliability();
  };
  onChosen(show);
  show();
}

/** Lines with results, the leading methods first, then as the table has them. */
const inOrder = (block) => block.lines.filter(({ ok }) => ok).sort((a, b) => a.curve.place - b.curve.place);

/** Names of the methods that are shown; names may hold anything, so each is encoded. */
function methodsShown(lines) {
  const listed = chosen(METHODS_KEY)?.split(",").filter(Boolean).map(decoded);
  return new Set(listed ?? lines.slice(0, SHOWN_FIRST).map(({ name }) => name));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody wrote it by hand
  }
}

function showReliability() {
  const block = DATA.blocks[Number(byId("reliability-block").value)];
  const lines = block ? inOrder(block) : [];
  const shown = methodsShown(lines);
  const draw = () => byId("reliability-figures").replaceChildren(
    ...lines.filter(({ name }) => shown.has(name)).map(diagram));
  const chip = (line) => {
    const button = el("button", { type: "button", class: "chip", "aria-pressed": String(shown.has(line.name)) },
      swatch(line), apart(line.name), line.curve.leads ? el("small", {}, "leading") : null);
    button.addEventListener("click", () => {
      if (!shown.delete(line.name)) shown.add(line.name);
      button.setAttribute("aria-pressed", String(shown.has(line.name)));
      choose({ [METHODS_KEY]: [...shown].map(encodeURIComponent).join(",") || "," });
      draw();
    });
    return button;
  };
  const none = el("p", { class: "muted" }, "No method has results here.");
  byId("reliability-methods").replaceChildren(...(lines.length ? lines.map(chip) : [none]));
  draw();
}

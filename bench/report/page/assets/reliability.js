// Reliability diagrams: each bin tells its counts and values when it is pointed at or reached with the arrow keys.

const PLOT = { width: 320, left: 38, right: 307, top: 8, bottom: 214, floor: 284, ceiling: 230 };
const SHOWN_FIRST = 4;

const across = (value) => PLOT.left + value * (PLOT.right - PLOT.left);
const upward = (value) => PLOT.bottom - value * (PLOT.bottom - PLOT.top);

/** The bins of a line that hold answers. */
function binsOf(line) {
  const { n, hits, confidence } = line.bins;
  const all = n.map((size, j) => ({
    j, size, hits: hits[j], from: j / n.length, to: (j + 1) / n.length,
    confidence: confidence[j] / PARTS,
    share: size ? hits[j] / size : null,
    interval: size ? wilson(hits[j], size) : null,
  }));
  return all.filter(({ size }) => size);
}

function told(bin) {
  const range = `${bin.from.toFixed(2).replace(/0$/, "")}–${bin.to.toFixed(2).replace(/0$/, "")}`;
  const [low, high] = bin.interval.map((end) => (100 * end).toFixed(1));
  return `${range}: ${count(bin.size)} answers, ${count(bin.hits)} right. Mean confidence ${percent(bin.confidence)}, `
    + `right ${percent(bin.share)} (${low}–${high} %).`;
}

function summed(line) {
  if (!line.bins.n.length) return "No probabilities: scores without a scale.";
  const e = METRICS.findIndex(({ name }) => name === "ece");
  const seeds = line.seeds.length > 1 ? `, mean of ${line.seeds.length} seeds` : "";
  const bins = binsOf(line).length;
  return `ECE ${line.text[e] ?? DASH} % over subjects; `
    + `${count(line.n)} answers in ${bins} of ${line.bins.n.length} bins${seeds}.`;
}

/** The figure of one line. */
function diagram(line) {
  const bins = binsOf(line);
  const readout = el("p", { class: "readout", "aria-live": "polite" }, summed(line));
  const chart = drawn("svg", {
    viewBox: `0 0 ${PLOT.width} ${PLOT.floor + 28}`, class: "diagram", role: "group", vars: { "--c": line.colour },
    "aria-label": `Reliability of ${line.name}: ${bins.length} bins, arrow keys move between them`,
  }, ...axes(), ...bins.flatMap(pointed), path(bins), ...bins.map((bin) => dotted(bin, bins)), ...histogram(bins));
  const targets = bins.map((bin, i) => target(bin, i, line, readout));
  chart.append(...targets);
  chart.addEventListener("keydown", (event) => walk(event, targets));
  return el("figure", { class: "reliability", "data-method": line.name },
    el("figcaption", {}, swatch(line), apart(line.name)), chart, readout);
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

/** Whisker of a bin, and how far it is from the diagonal. */
function pointed(bin) {
  const x = across(bin.confidence);
  return [
    drawn("line", { x1: x, x2: x, y1: upward(bin.interval[0]), y2: upward(bin.interval[1]), class: "whisker" }),
    drawn("line", { x1: x, x2: x, y1: upward(bin.confidence), y2: upward(bin.share), class: "gap" }),
  ];
}

const path = (bins) =>
  drawn("polyline", { class: "path", points: bins.map((b) => `${across(b.confidence)},${upward(b.share)}`).join(" ") });

function dotted(bin, bins) {
  const most = Math.max(...bins.map(({ size }) => size));
  return drawn("circle", {
    cx: across(bin.confidence), cy: upward(bin.share), class: "point",
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

function startReliability() {
  const select = byId("reliability-block");
  fill(select, DATA.blocks.map((block) => [String(block.index), block.name]));
  select.form.addEventListener("submit", (event) => event.preventDefault());
  select.addEventListener("input", showReliability);
  showReliability();
}

let hiddenMethods = null;

function showReliability() {
  const block = DATA.blocks[Number(byId("reliability-block").value)];
  const lines = block.lines.filter(({ ok }) => ok);
  hiddenMethods ??= new Set([...new Set(LINES.filter(({ ok }) => ok).map(({ name }) => name))].slice(SHOWN_FIRST));
  const draw = () => byId("reliability-figures").replaceChildren(
    ...lines.filter(({ name }) => !hiddenMethods.has(name)).map(diagram));
  const chip = (line) => {
    const pressed = String(!hiddenMethods.has(line.name));
    const button = el("button", { type: "button", class: "chip", "aria-pressed": pressed },
      swatch(line), apart(line.name));
    button.addEventListener("click", () => {
      if (!hiddenMethods.delete(line.name)) hiddenMethods.add(line.name);
      button.setAttribute("aria-pressed", String(!hiddenMethods.has(line.name)));
      draw();
    });
    return button;
  };
  const none = el("p", { class: "muted" }, "No method has results here.");
  byId("reliability-methods").replaceChildren(...(lines.length ? lines.map(chip) : [none]));
  draw();
}

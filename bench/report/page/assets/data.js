// What the page was written with, and how its numbers are read.

const DATA = JSON.parse(byId("data").textContent);
const METRICS = DATA.metrics;
const PARTS = 10000;
const DASH = "–";
const ARROWS = { 1: " ↑", "-1": " ↓", 0: "" };

const LABELS = new Set(DATA.blocks.map(({ label }) => label));

for (const [b, block] of DATA.blocks.entries()) {
  block.index = b;
  block.aside = LABELS.size > 1 ? block.label : ""; // what all share is said once, at the top
  block.name = [block.model, block.task, ...(block.aside ? [block.aside] : [])].join(" · ");
  for (const [i, line] of block.lines.entries()) {
    line.block = block;
    line.index = i;
    line.name = DATA.methods[line.method].name + (line.variant ? ` (${line.variant})` : "");
    line.colour = DATA.methods[line.method].colour;
    line.ok = line.status === "ok";
  }
}

const LINES = DATA.blocks.flatMap((block) => block.lines);
const SEEDED = LINES.some((line) => line.runs > 1);
const RATED = LINES.some((line) => line.ci);

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const count = (n) => n.toLocaleString("en-US", { maximumFractionDigits: 1 });

/** A metric's value as text, percent with one decimal or nats with three, with a real minus. */
function valued(metric, value) {
  if (value === null) return DASH;
  const text = metric.percent ? (100 * value).toFixed(1) : value.toFixed(3);
  return (Number(text) ? text : text.replace("-", "")).replace("-", "−");
}

/** The metric that another one is ranked and tested by: ECE, which has no test, by RMSCE. */
const judgedBy = (name) => (name === "ece" ? "rmsce" : name);

const percent = (value) => `${(100 * value).toFixed(1)} %`;

/** The line's swatch, which has its colour everywhere. */
const swatch = (line) => el("span", { class: "swatch", vars: { "--c": line.colour }, "aria-hidden": "true" });

/** Links to footnotes, raised. */
function marks(numbers) {
  const links = [...new Set(numbers)].filter(Boolean).sort((a, b) => a - b);
  return links.map((number) =>
    el("sup", {}, el("a", { href: `#fn-${number}`, "aria-label": `footnote ${number}` }, String(number))),
  );
}

/** 95 % interval of a share (Wilson, 1927). */
function wilson(hits, n) {
  const z = 1.959964;
  const share = hits / n;
  const middle = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

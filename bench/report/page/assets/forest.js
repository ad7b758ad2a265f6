// Differences of all methods to one of them, with the interval of each pair; pressing a method makes it that one.

const MILLION = 1000000;
const VERDICTS = { better: "better", worse: "worse", tie: "can’t be distinguished", none: "no test" };
const FOREST_HEIGHT = 26;

/** A number with so many decimals; exact ties go to the even digit, as in all other formats, and not up. */
function fixedText(number, decimals) {
  const digits = Math.abs(number).toFixed(Math.min(100, decimals + 60));
  const end = digits.indexOf(".") + (decimals ? decimals + 1 : 0);
  const isEven = "02468".includes(digits[end - 1]);
  const text = /^\.?50*$/.test(digits.slice(end)) && isEven ? digits.slice(0, end) : Math.abs(number).toFixed(decimals);
  return number < 0 && Number(text) ? `−${text}` : text;
}

/** Millionths as tables show a difference: with as many decimals as it takes to not look like 0 if it isn't 0. */
function preciseText(metric, millionths) {
  if (millionths === null) return DASH;
  const number = metric.percent ? 100 * (millionths / MILLION) : millionths / MILLION;
  const least = metric.percent ? 1 : 3;
  const isSmall = millionths !== 0 && Math.abs(number) < 0.5 * 10 ** -least;
  return fixedText(number, isSmall ? Math.max(least, -Math.floor(Math.log10(Math.abs(number)) + 1e-12)) : least);
}

const signedText = (metric, millionths) => (millionths > 0 ? "+" : "") + preciseText(metric, millionths);
const endsText = (metric, { low, high }) =>
  (low === null ? DASH : `${preciseText(metric, low)} to ${preciseText(metric, high)}`);
const chanceText = (p) => (p === null ? DASH : p ? (p / 1000).toFixed(3) : "<0.001");

/** One line minus another one, by their places; null where they are no pair. */
function pairBetween(pairs, name, first, second) {
  const found = pairs.metrics[name];
  if (!found || first === second) return null;
  const [i, j] = [Math.min(first, second), Math.max(first, second)];
  const number = i * pairs.columns.length - (i * (i + 1)) / 2 + j - i - 1;
  const [difference, low, high] = found.values.slice(3 * number, 3 * number + 3);
  if (difference === null) return null;
  const sign = found.winner[number];
  const verdict = { "=": "tie", "-": "none" }[sign] ?? ((sign === "0") === (first < second) ? "better" : "worse");
  const p = found.p[number];
  if (first < second) return { difference, low, high, p, verdict };
  const turned = (value) => (value === null ? null : -value || 0);
  return { difference: turned(difference), low: turned(high), high: turned(low), p, verdict };
}

/** Round numbers between two ends, at most `most` and a few. */
function roundTicks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(k * step);
  return { ticks, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/** The common axis of all rows: places in percent of its width. */
function forestAxis(metric, rows) {
  const scale = metric.percent ? 100 / MILLION : 1 / MILLION;
  const ends = rows.flatMap(({ pair }) => (pair ? [pair.difference, pair.low, pair.high] : []))
    .filter((value) => value !== null).map((value) => value * scale);
  const widest = Math.max(...ends.map(Math.abs), 0) || 1;
  // Words stand on both sides of 0, so that there must be room.
  const [low, high] = [Math.min(-0.3 * widest, ...ends), Math.max(0.3 * widest, ...ends)];
  const room = 0.04 * (high - low);
  const place = (value) => `${((100 * (value - low + room)) / (high - low + 2 * room)).toFixed(3)}%`;
  return { ...roundTicks(low, high, 7), place, of: (millionths) => place(millionths * scale) };
}

function forestDrawing({ line, pair, isReference }, axis) {
  const middle = FOREST_HEIGHT / 2;
  const upright = (value, kind) => {
    const x = axis.place(value);
    return drawn("line", { x1: x, x2: x, y1: 0, y2: FOREST_HEIGHT, class: kind });
  };
  const node = drawn("svg", {
    class: "forest", height: FOREST_HEIGHT, vars: { "--c": line.colour }, "aria-hidden": "true",
  }, ...axis.ticks.filter((tick) => tick).map((tick) => upright(tick, "rule")), upright(0, "zero"));
  if (isReference) {
    node.append(drawn("rect", { x: axis.place(0), y: middle - 4, width: 8, height: 8, class: "at" }));
  } else if (pair) {
    if (pair.low !== null) {
      node.append(drawn("line", {
        x1: axis.of(pair.low), x2: axis.of(pair.high), y1: middle, y2: middle, class: "whisker",
      }));
    }
    const kind = pair.verdict === "better" || pair.verdict === "worse" ? "sure" : "unsure";
    node.append(drawn("circle", { cx: axis.of(pair.difference), cy: middle, r: 4.5, class: kind }));
  }
  return node;
}

/** Names of the ticks, and to which side is better. */
function forestHead(view, axis) {
  const { metric, reference } = view;
  const sides = [`← ${metric.better < 0 ? "better" : "worse"}`, `${metric.better < 0 ? "worse" : "better"} →`];
  const words = sides.map((side, i) => drawn("text", {
    x: axis.place(0), dx: i ? 6 : -6, y: 11, "text-anchor": i ? "start" : "end", class: "side",
  }, side));
  const names = axis.ticks.map((tick) => drawn("text", { x: axis.place(tick), y: 26, "text-anchor": "middle" },
    fixedText(tick, axis.decimals)));
  return el("div", { class: "forest-head" },
    unseen(`left ${sides[0].slice(2)}, right ${sides[1].slice(0, -2)} than ${reference.name}`),
    drawn("svg", { class: "forest names", height: 30, "aria-hidden": "true" }, ...words, ...names));
}

/** The rows of a view, the best difference first, then lines that are no pair with the reference. */
function forestRows({ lines, reference, pairs, metric }) {
  const rows = lines.map((line) => ({
    line, isReference: line === reference, pair: pairBetween(pairs, metric.name, line.place, reference.place),
  }));
  const size = ({ isReference, pair }) => (isReference ? 0 : pair?.difference ?? null);
  return rows.sort((a, b) => {
    const [first, second] = [size(a), size(b)];
    if (first === null || second === null) return (first === null) - (second === null);
    return metric.better * (second - first);
  });
}

function forestRow(row, view, axis) {
  const { line, pair, isReference } = row;
  const { metric, reference } = view;
  const button = el("button", {
    type: "button", class: "choice", "aria-pressed": String(isReference), tabindex: isReference ? "0" : "-1",
    "data-line": line.name, title: isReference ? null : `Differences to ${line.name}`,
  }, swatch(line), apart(line.name));
  const why = line.block.pairs.metrics[metric.name] ? "rests on other answers or labels" : "no test";
  const told = pair
    ? [signedText(metric, pair.difference), endsText(metric, pair), chanceText(pair.p)] : [DASH, DASH, DASH];
  const joined = { better: "than", worse: "than", tie: "from" }[pair?.verdict] ?? null;
  const verdict = isReference ? "reference" : pair ? VERDICTS[pair.verdict] : why;
  return el("tr", { class: isReference ? "reference" : null },
    el("th", { scope: "row" }, button, line.isRanked ? null : el("small", { class: "tag" }, "no rank")),
    el("td", { class: "drawing" }, forestDrawing(row, axis)),
    ...["num", "num", "num p"].map((kind, i) => el("td", { class: kind }, isReference ? "" : told[i])),
    el("td", { class: `said ${pair?.verdict ?? ""}` }, verdict, joined && unseen(` ${joined} ${reference.name}`)));
}

/** The table; `press(line name)` is called when a method is chosen. */
function forestTable(view, press) {
  const { metric, reference } = view;
  const rows = forestRows(view);
  const axis = forestAxis(metric, rows);
  const unit = metric.percent ? "percentage points" : "nats";
  const heading = (text, kind = null) => el("th", { scope: "col", class: kind }, text);
  const table = el("table", { class: "forests" },
    el("caption", {}, `${metric.label} of each method minus that of `, apart(reference.name), `, in ${unit}: `,
      `${metric.better < 0 ? "below" : "above"} 0 the method is better.`),
    el("thead", {}, el("tr", {}, heading("Method"), heading(forestHead(view, axis), "drawing"),
      heading("Difference", "num"), heading("95 % interval", "num"), heading("p corrected", "num p"),
      el("th", { scope: "col" }, "Beside ", apart(reference.name)))),
    el("tbody", {}, ...rows.map((row) => forestRow(row, view, axis))));
  table.addEventListener("click", (event) => {
    const button = event.target.closest("tbody tr")?.querySelector("button.choice");
    if (button) press(button.dataset.line);
  });
  table.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.matches("button.choice")) return;
    const buttons = [...table.querySelectorAll("button.choice")];
    event.preventDefault();
    buttons[buttons.indexOf(event.target) + step]?.focus();
  });
  return table;
}

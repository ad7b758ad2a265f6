// Quality against cost, with the methods than which none is both better and cheaper.

const PARETO_COSTS = [
  ["tokens", "token positions fed to the model",
    "Token positions that the model must read for this method alone; many go through it in one pass."],
  ["generated", "tokens generated",
    "Tokens that the model must write for this method alone; each waits for the one before."],
];
const PARETO = { height: 380, left: 54, right: 16, top: 14, bottom: 46, radius: 5, line: 18 };

/** The points on the front, which the page was written with; the cheapest first. */
function paretoFront(points, { metric, kind, pairs: { fronts } }, cost) {
  const on = fronts[metric.name][cost][kind === "none" ? "" : kind] ?? [];
  return points.filter(({ line }) => on.includes(line.place)).sort((a, b) => a.cost - b.cost);
}

function paretoPoints({ lines, metric, m, pairs: { costs, fronts } }, cost) {
  const competing = new Set(fronts[metric.name].competing);
  return lines.filter((line) => line.mean[m] !== null && costs[cost][line.place] !== null)
    .map((line) => ({
      line, name: line.name, competes: competing.has(line.place), cost: costs[cost][line.place], quality: line.mean[m],
    }))
    .sort((a, b) => metric.better * (b.quality - a.quality));
}

/** A logarithmic axis with a place for 0, from one pixel to another. */
function paretoAcross(costs, from, to) {
  const positive = costs.filter((cost) => cost > 0);
  const powers = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** power)).flat();
  const first = Math.max(0, powers.findIndex((round) => round > Math.min(...positive)) - 1);
  const last = Math.max(first + 2, powers.findIndex((round) => round >= Math.max(...positive, 1)));
  const [lowest, highest] = [Math.log10(powers[first]), Math.log10(powers[last])];
  const hasZero = costs.some((cost) => cost <= 0);
  const start = hasZero ? from + Math.max(60, 0.12 * (to - from)) : from;
  const place = (cost) => (cost > 0
    ? start + ((Math.log10(cost) - lowest) / (highest - lowest)) * (to - start) : from + 14);
  const ticks = powers.slice(first, last + 1);
  return { place, start, hasZero, ticks: hasZero ? [0, ...ticks] : ticks };
}

function paretoTick(value) {
  const [size, unit] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([least]) => value >= least) ?? [1, ""];
  return `${count(value / size)}${unit}`;
}

/** Places for labels: near their points, on nothing else; null where there is no room. */
function placeLabels(points, steps, frame, widthOf) {
  const around = (size) => points.map(({ x, y }) => [x - size, y - size, x + size, y + size]);
  const [taken, crossed] = [[...steps, ...around(7)], around(5)];
  const isOn = ([left, top, right, bottom], boxes) =>
    boxes.some(([l, t, r, b]) => left < r && right > l && top < b && bottom > t);
  const isFree = (box) => box[0] >= frame.left && box[2] <= frame.right && box[1] >= frame.top
    && box[3] <= frame.bottom && !isOn(box, taken);
  const angles = [0, 180, 330, 30, 210, 150, 300, 60, 240, 120, 315, 45, 345, 15, 285, 75, 270, 90];
  return points.map(({ x, y, name }) => {
    const width = widthOf(name);
    for (const far of [10, 18, 28, 40, 54, 70, 88, 108, 130]) {
      for (const angle of angles) {
        const [dx, dy] = [Math.cos((angle * Math.PI) / 180), Math.sin((angle * Math.PI) / 180)];
        const [ex, ey] = [x + far * dx, y + far * dy];
        const beside = dx > 0.3 ? ex : dx < -0.3 ? ex - width : ex - width / 2;
        const left = Math.min(Math.max(beside, Math.abs(dx) > 0.6 ? beside : frame.left), frame.right - width);
        const box = [left, ey - PARETO.line / 2, left + width, ey + PARETO.line / 2];
        const along = far > 12 ? Array.from({ length: Math.floor((far - 8) / 4) }, (_, k) => 8 + 4 * k) : [];
        const leader = along.map((step) => [x + step * dx, y + step * dy, x + step * dx, y + step * dy]);
        if (!isFree(box) || leader.some((spot) => isOn(spot, crossed))) continue;
        taken.push(box, ...leader);
        crossed.push(box);
        return { left, middle: ey, leader: far > 12 ? [x + 6 * dx, y + 6 * dy, ex, ey] : null };
      }
    }
    return null;
  });
}

/** Widths of texts in pixels, in the type of a node. */
function measureIn(node) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `bold 12px ${getComputedStyle(node).fontFamily}`;
  return (text) => pen.measureText(text).width + 4;
}

function paretoDrawing(view, cost, points, front, place) {
  const { metric } = view;
  const width = Math.max(280, place.clientWidth);
  const scale = metric.percent ? 100 : 1;
  const values = points.map(({ quality }) => scale * quality);
  const room = 0.1 * (Math.max(...values) - Math.min(...values)) || 0.05 * scale;
  const [low, high] = [Math.min(...values) - room, Math.max(...values) + room];
  const frame = {
    left: PARETO.left, right: width - PARETO.right, top: PARETO.top, bottom: PARETO.height - PARETO.bottom,
  };
  const upward = (value) => frame.bottom - ((scale * value - low) / (high - low)) * (frame.bottom - frame.top);
  const axis = paretoAcross(points.map((point) => point.cost), frame.left + 8, frame.right - 8);
  const placed = points.map((point) => ({ ...point, x: axis.place(point.cost), y: upward(point.quality) }));
  const first = (point) => (front.some(({ line }) => line === point.line) ? 0 : 1);
  const order = placed.sort((a, b) => first(a) - first(b));
  const turns = paretoTurns(order.filter((point) => !first(point)), frame);
  const steps = turns.slice(1).map((end, i) => boxOf(turns[i], end));
  const labels = placeLabels(order, steps, frame, measureIn(place));
  const text = (x, y, words, anchor, kind = "tick") =>
    drawn("text", { x, y, "text-anchor": anchor, class: kind }, words);
  const ruled = (x1, y1, x2, y2, kind) => drawn("line", { x1, x2, y1, y2, class: kind });
  const { ticks, decimals } = roundTicks(low, high, 5);
  const shownTicks = [];
  for (const tick of axis.ticks) {
    if (!shownTicks.length || axis.place(tick) - axis.place(shownTicks.at(-1)) > 36) shownTicks.push(tick);
  }
  const svg = drawn("svg", {
    class: "pareto", width, height: PARETO.height, viewBox: `0 0 ${width} ${PARETO.height}`, role: "img",
    "aria-label": `${metric.label} against ${cost[1]}. On the Pareto front: `
      + `${front.map(({ name }) => name).join(", ") || "none"}. All numbers are in the table below.`,
  });
  svg.append(
    ...ticks.flatMap((tick) => [
      ruled(frame.left, upward(tick / scale), frame.right, upward(tick / scale), "rule"),
      text(frame.left - 6, upward(tick / scale) + 4, fixedText(tick, decimals), "end"),
    ]),
    ...shownTicks.map((tick) => text(axis.place(tick), frame.bottom + 16, tick ? paretoTick(tick) : "0", "middle")),
    ruled(axis.start - (axis.hasZero ? 0 : 8), frame.bottom, frame.right, frame.bottom, "base"),
    ...(axis.hasZero ? [ruled(axis.start - 10, frame.top, axis.start - 10, frame.bottom, "break")] : []),
    text((frame.left + frame.right) / 2, PARETO.height - 8, `${cost[1]} (logarithmic) →`, "middle", "title"),
    drawn("text", {
      transform: `translate(13 ${(frame.top + frame.bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "title",
    }, `${metric.label}${metric.percent ? " (%)" : ""}, ${metric.better < 0 ? "less" : "more"} is better`),
    drawn("path", { class: "front", d: `M${turns.map((turn) => turn.join(" ")).join("L") || "0 0"}` }),
  );
  order.forEach((point, i) => svg.append(...paretoMark(point, labels[i], !first(point))));
  return { svg, unlabelled: order.filter((_, i) => !labels[i]).map(({ name }) => name) };
}

/** Corners of the front, which is steps: between two of its methods, one gets what the cheaper one gives. */
function paretoTurns(points, frame) {
  const sorted = [...points].sort((a, b) => a.x - b.x);
  const turns = sorted.flatMap(({ x, y }, i) => (i ? [[x, sorted[i - 1].y], [x, y]] : [[x, y]]));
  return turns.length ? [...turns, [frame.right, turns.at(-1)[1]]] : [];
}

/** The box around two corners. */
const boxOf = ([x, y], [toX, toY]) =>
  [Math.min(x, toX) - 1, Math.min(y, toY) - 1, Math.max(x, toX) + 1, Math.max(y, toY) + 1];

function paretoMark({ line, x, y, name, competes }, label, isFront) {
  const kind = competes ? (isFront ? "point on-front" : "point") : "point hollow";
  const mark = drawn("circle", {
    cx: x, cy: y, r: PARETO.radius, class: kind, vars: { "--c": line.colour }, "data-line": name,
  }, drawn("title", {}, name));
  if (!label) return [mark];
  const named = { x: label.left + 2, y: label.middle + 4, class: isFront ? "label on-front" : "label" };
  const words = drawn("text", named, name);
  const [x1, y1, x2, y2] = label.leader ?? [];
  return [label.leader ? drawn("line", { x1, y1, x2, y2, class: "leader" }) : null, mark, words].filter(Boolean);
}

/** Draws the figure anew where its width changes. */
let paretoObserver = null;

/** Put the figure, what it leaves out, and its numbers as a table into an element. */
function showPareto(view, key, into) {
  paretoObserver?.disconnect();
  const cost = PARETO_COSTS.find(([name]) => name === key);
  const points = paretoPoints(view, key);
  const drawnLines = new Set(points.map(({ line }) => line));
  const unknown = view.every.filter((line) => line.ok && !drawnLines.has(line)).map(({ name }) => name);
  if (!points.length) {
    into.replaceChildren(el("p", { class: "muted" }, `How many ${cost[1]} there were is not known of these results.`));
    return;
  }
  const front = paretoFront(points, view, key);
  const place = el("div", { class: "pareto-place" });
  const small = el("p", { class: "muted legend" });
  let width = 0;
  const draw = () => {
    if (!place.clientWidth || place.clientWidth === width) return;
    width = place.clientWidth;
    const { svg, unlabelled } = paretoDrawing(view, cost, points, front, place);
    place.replaceChildren(svg);
    small.textContent = [
      cost[2],
      "The line is the Pareto front of means: no ranked method is cheaper and no worse, or better and no dearer.",
      view.pairs.hidden ? "Methods that are not shown count too." : "",
      points.some(({ competes }) => !competes) ? hollowWords(points, view.metric) : "",
      unknown.length ? `Not known, and so not drawn: ${unknown.join(", ")}.` : "",
      unlabelled.length ? `Without a label, for want of room: ${unlabelled.join(", ")}; the table has them.` : "",
    ].filter(Boolean).join(" ");
  };
  into.replaceChildren(place, small, paretoNumbers(view, cost, points, front));
  draw();
  paretoObserver = new ResizeObserver(draw);
  paretoObserver.observe(place);
}

/** Why some points can't be on the front. */
function hollowWords(points, { name }) {
  const ranked = points.some(({ competes, line }) => !competes && line.isRanked);
  const why = ["have no rank", ...(ranked ? ["rest on other answers or labels"] : []),
    ...(ranked && name === "rmsce" ? ["don’t order answers"] : [])];
  return `Hollow points ${why.join(", or ")} and are never on it.`;
}

function paretoNumbers({ metric, m }, cost, points, front) {
  const rows = [...points].sort((a, b) => a.cost - b.cost);
  const isFront = ({ line }) => front.some((point) => point.line === line);
  const place = (point) => {
    if (!point.competes) return point.line.isRanked ? "can’t be" : "no rank";
    return isFront(point) ? "yes" : "no";
  };
  const head = ["Method", cost[1], `${metric.label}${ARROWS[metric.better]}`, "On the front"];
  return el("details", { class: "numbers" }, el("summary", {}, "Numbers of this figure"),
    el("div", { class: "wide" }, el("table", {},
      el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...rows.map((point) => el("tr", {}, el("th", { scope: "row" }, apart(point.name)),
        el("td", { class: "num" }, count(point.cost)), el("td", { class: "num" }, point.line.text[m] ?? DASH),
        el("td", {}, place(point))))))));
}

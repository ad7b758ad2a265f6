// Two methods beside each other: the tests of all metrics, as they were computed, and the questions they disagree on most.

function showPair(block) {
  const { pairs } = block;
  const place = byId("pair");
  if (!pairs) return place.replaceChildren(el("p", { class: "muted" }, "No two methods were tested against each other here."));
  const lines = pairs.columns.map((column) => block.lines.find((line) => line.column === column));
  const named = (key) => lines.find(({ name }) => name === getChoice(key));
  const ordered = block.headlines[DATA.headline].order.map((i) => block.lines[i]).filter((line) => lines.includes(line));
  const first = named("first") ?? lines[Object.values(pairs.best)[0]] ?? lines[0];
  const second = [named("second"), ...ordered].find((line) => line && line !== first);
  const select = (key, label, line) => {
    const node = el("select", { id: `pair-${key}` }, ...lines.map(({ name }) => el("option", { value: name }, name)));
    node.value = line.name;
    node.addEventListener("input", () => {
      setChoices({ first: first.name, second: second.name, [key]: node.value });
      showPair(block);
      byId(`pair-${key}`).focus();
    });
    return el("label", {}, label, " ", node);
  };
  const form = el("form", { class: "controls", "aria-label": "Choice of two methods" },
    select("first", "Method", first), select("second", "Beside", second));
  return place.replaceChildren(form, pairTable(pairs, lines, first, second), disagreementLists(first, second));
}

/** All metrics of a pair, the method that is listed first minus the other one. */
function pairTable(pairs, lines, first, second) {
  const [i, j] = [lines.indexOf(first), lines.indexOf(second)].sort((a, b) => a - b);
  const number = i * lines.length - (i * (i + 1)) / 2 + j - i - 1;
  const row = (name) => {
    const metric = METRICS.find((one) => one.name === name);
    const [difference, ends, p, verdict] = pairs.metrics[name][number] ?? [DASH, DASH, DASH, ""];
    const word = DATA.verdicts[verdict];
    const labels = ["Difference", "95 % interval", "p corrected"];
    return el("tr", {}, el("th", { scope: "row", class: "name" }, headingOf(metric)),
      ...[difference, ends, p].map((text, k) => el("td", { class: "num", "data-label": labels[k] }, text)),
      el("td", { class: ["better", "worse"].includes(word) ? word : null }, word));
  };
  return el("table", { class: "cards", id: "pair-table" },
    el("caption", {}, isolate(lines[i].name), " minus ", isolate(lines[j].name),
      ", on the same questions; p is corrected for all pairs and decides. In percentage points, NLL in nats."),
    el("thead", {}, el("tr", {}, ...["Metric", "Difference", "95 % interval", "p corrected"].map((text, k) =>
      el("th", { scope: "col", class: k ? "num" : null }, text)), el("th", { scope: "col" }, isolate(lines[i].name), " is"))),
    el("tbody", {}, ...Object.keys(pairs.metrics).map(row)));
}

/** Rows of the questions of which the first line is surer, and of which the second is; null where the page has none. */
function disagreementsOf(questions, first, second) {
  const [a, b] = [Math.min(first.column, second.column), Math.max(first.column, second.column)];
  const pair = questions?.disagreements?.find(([one, other]) => one === a && other === b);
  if (!pair) return null;
  const [, , above, below] = pair;
  return first.column === a ? [above, below] : [below, above];
}

function disagreement(row, first, second) {
  const { questions } = first.block;
  const [text, options] = DATA.asked[questions.asked[row]] ?? ["", []];
  const option = questions.letter[row] === null ? null : options[questions.letter[row]];
  const answer = questions.answer[row] || "no answer";
  const right = questions.correct[row] ? "right" : "wrong";
  const sure = (line) => {
    const share = questions.confidence[line.column][row] / PARTS;
    return el("span", { class: "sure", vars: { "--c": line.colour, "--x": String(share) } },
      isolate(line.name, { class: "who" }), el("span", { class: "bar", "aria-hidden": "true" }),
      el("span", { class: "num" }, share.toFixed(3)));
  };
  const body = el("ul", { class: "questions" });
  const node = el("details", { class: "dispute" },
    el("summary", {}, el("span", { class: "asking" }, isolate(text || questions.id[row], { dir: "auto", class: "text" }),
      el("span", { class: "head" }, el("span", { class: `verdict ${right}` }, right), " · answer ",
        isolate(answer, { class: "short" }), option ? [" ", isolate(option.trim(), { class: "short" })] : null)),
    el("span", { class: "sures" }, sure(first), sure(second))), body);
  node.addEventListener("toggle", () => {
    if (node.open && !body.childElementCount) body.append(question(first, row));
  });
  return el("li", { "data-question": questions.id[row] }, node);
}

/** Both lists, or a sentence on why there are none. */
function disagreementLists(first, second) {
  const { questions } = first.block;
  if (!second) return el("p", { class: "muted" }, "There is no other method to compare with.");
  const lists = disagreementsOf(questions, first, second);
  const [each, all, limit] = DATA.disagreements;
  if (!lists) {
    return el("p", { class: "muted" }, all
      ? "One of these two rests on other answers or labels than those that the page shows."
      : "A page of this size has these questions only of pairs with the best method.");
  }
  const total = count(questions.of.all);
  const list = (surer, other, rows) => el("section", {},
    el("h4", {}, isolate(surer.name), " surer than ", isolate(other.name)),
    rows.length ? el("ol", { class: "disputes" }, ...rows.map((row) => disagreement(row, surer, other)))
      : el("p", { class: "muted" }, "On no question."));
  return el("div", {},
    el("p", { class: "muted legend" }, `Of all ${total} questions, the ${each} with the largest difference of `
      + "confidences (means over seeds) each way. A question opens to its options and all methods’ confidences.",
    limit ? ` Texts of questions that stand only here are cut to ${limit} characters, without options.` : "",
    first.block.textless ? " Texts of questions are not at hand; runs write them beside their results." : ""),
    el("div", { class: "both" }, list(first, second, lists[0]), list(second, first, lists[1])));
}

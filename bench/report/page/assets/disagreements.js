// The questions on which two methods disagree most, each way.

/** Rows of the questions of which the first line is surer, and of which the second is; null where the page has none. */
function disagreementsOf(questions, first, second) {
  const [a, b] = [Math.min(first.column, second.column), Math.max(first.column, second.column)];
  const found = questions?.disagreements?.find(([one, other]) => one === a && other === b);
  if (!found) return null;
  const [, , above, below] = found;
  return first.column === a ? [above, below] : [below, above];
}

function disputed(row, first, second) {
  const { questions } = first.block;
  const [text, options] = DATA.asked[questions.asked[row]] ?? ["", []];
  const said = questions.letter[row] === null ? null : options[questions.letter[row]];
  const answer = questions.answer[row] || "no answer";
  const right = questions.correct[row] ? "right" : "wrong";
  const sure = (line) => {
    const share = questions.confidence[line.column][row] / PARTS;
    return el("span", { class: "sure", vars: { "--c": line.colour, "--x": String(share) } },
      apart(line.name, { class: "who" }), el("span", { class: "bar", "aria-hidden": "true" }),
      el("span", { class: "num" }, share.toFixed(3)));
  };
  const body = el("ul", { class: "questions" });
  const node = el("details", { class: "dispute" },
    el("summary", {}, el("span", { class: "asking" }, apart(text || questions.id[row], { dir: "auto", class: "text" }),
      el("span", { class: "head" }, el("span", { class: `verdict ${right}` }, right), " · answer ",
        apart(answer, { class: "short" }), said ? [" ", apart(said.trim(), { class: "short" })] : null)),
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
  const found = disagreementsOf(questions, first, second);
  const [each, all, limit] = DATA.disagreements;
  if (!found) {
    return el("p", { class: "muted" }, all
      ? "One of these two rests on other answers or labels than those that the page shows."
      : "A page of this size has these questions only of pairs with the best method: choose it as the reference.");
  }
  const total = count(questions.of.all);
  const list = (surer, other, rows) => el("section", {},
    el("h4", {}, apart(surer.name), " surer than ", apart(other.name)),
    rows.length ? el("ol", { class: "disputes" }, ...rows.map((row) => disputed(row, surer, other)))
      : el("p", { class: "muted" }, "On no question."));
  return el("div", {},
    el("p", { class: "muted legend" }, `Of all ${total} questions, the ${each} with the largest difference of `
      + "confidences (means over seeds) each way. A question opens to its options and all methods’ confidences.",
    limit ? ` Texts of questions that stand only here are cut to ${limit} characters, without options.` : "",
    first.block.textless ? " Texts of questions are not at hand; runs write them beside their results." : ""),
    el("div", { class: "both" }, list(first, second, found[0]), list(second, first, found[1])));
}

// Single questions of a model and benchmark: text, options, answer, and how confident each method was.

const GROUPS = [
  ["mistakes", "Most confident mistakes", -1],
  ["hits", "Least confident hits", 1],
  ["random", "At random", 0],
];

/** Rows of a group, ordered by the line's confidence, of one subject or of all (-1). */
function rowsOf(line, group, subject) {
  const questions = line.block.questions;
  const [, , way] = GROUPS.find(([name]) => name === group);
  const confidence = questions.confidence[line.column];
  const rows = questions.groups[group].filter((row) => subject < 0 || questions.subject[row] === subject);
  return way ? rows.sort((a, b) => way * ((confidence[a] ?? 0) - (confidence[b] ?? 0))) : rows;
}

/** The part of the panel that shows questions. `show(subject)` limits it to one. */
function questionsOf(line) {
  const questions = line.block.questions;
  const present = [...new Set(questions.subject)].sort((a, b) => a - b);
  const select = el("select", { id: "question-subject" });
  setOptions(select, [["-1", "All subjects"], ...present.map((s) => [String(s), line.block.subjects[s]])]);
  const place = el("ol", { class: "questions" });
  const status = el("p", { class: "muted", role: "status" });
  const linkedRow = questions.id.indexOf(getChoice("question") ?? "");
  const named = GROUPS.map(([name]) => name);
  let group = named.includes(getChoice("group")) ? getChoice("group") : named[0];
  if (linkedRow >= 0 && !questions.groups[group].includes(linkedRow)) {
    group = named.find((name) => questions.groups[name].includes(linkedRow));
  }
  const linkedSubject = line.block.subjects.indexOf(getChoice("subject") ?? "");
  if (present.includes(linkedSubject)) select.value = String(linkedSubject);
  const buttons = GROUPS.map(([name, label]) => {
    const total = count(questions.of[name] ?? questions.of.all);
    return el("button", { type: "button", class: "chip", "data-group": name, on: { click: () => pick(name) } },
      label, el("small", {}, `${count(questions.groups[name].length)} of ${total}`));
  });
  const draw = () => {
    const subject = Number(select.value);
    const rows = rowsOf(line, group, subject);
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.group === group));
    place.replaceChildren(...rows.map((row) => question(line, row)));
    status.textContent = rows.length ? `${count(rows.length)} shown` : "None of these is of this subject.";
  };
  const pick = (name) => {
    group = name;
    remember();
    draw();
  };
  const remember = () => setChoices({
    group: group === named[0] ? null : group, subject: line.block.subjects[select.value] ?? null, question: null,
  });
  select.addEventListener("input", () => {
    remember();
    draw();
  });
  draw();
  const node = el("section", { class: "asked", "aria-labelledby": "asked-title" },
    el("h4", { id: "asked-title", tabindex: "-1" }, "Questions"), el("p", { class: "muted legend" }, explained(line)),
    el("div", { class: "controls" },
      el("div", { class: "chips", role: "group", "aria-label": "Which questions" }, ...buttons),
      el("label", {}, "Subject ", select)),
    status, place);
  const show = (subject) => {
    if (present.includes(subject)) select.value = String(subject);
    remember();
    draw();
    node.querySelector("h4").focus();
  };
  return { node, show };
}

function explained(line) {
  const parts = ["Mistakes and hits are chosen by the mean confidence over methods, and ordered by that of ",
    isolate(line.name), "."];
  if (line.block.textless) parts.push(" Texts of questions are not at hand; runs write them beside their results.");
  if (DATA.asked_limit) parts.push(` Texts are cut to ${count(DATA.asked_limit)} characters.`);
  const differing = line.block.questions.differing;
  if (differing) {
    parts.push(` Methods differ in their answers to ${count(differing)} questions; those of most are shown.`);
  }
  if (line.block.questions.relabelled.includes(line.column)) {
    parts.push(" Right and wrong are shown as most methods have them; to ", isolate(line.name),
      ", some of these answers are the other one.");
  }
  return parts;
}

function question(line, row) {
  const questions = line.block.questions;
  const right = Boolean(questions.correct[row]);
  const [text, options, gold] = DATA.asked[questions.asked[row]] ?? ["", [], null];
  const verdict = right ? "right" : "wrong";
  const head = el("p", { class: "head" }, el("span", { class: `verdict ${verdict}` }, verdict),
    " ", isolate(line.block.subjects[questions.subject[row]]), " ", linkTo(questions.id[row]));
  const body = el("div", { class: "body" }, head,
    text ? clipped(text, { class: "text" }) : null,
    options.length ? optionList(options, questions.letter[row], gold) : null,
    el("dl", { class: "answer" }, ...answerItems(questions, row),
      ...(gold === null ? [] : [el("dt", {}, "Gold"), el("dd", {}, clipped(gold))])));
  const isChosen = getChoice("question") === questions.id[row];
  return el("li", { class: "question", "data-at": isChosen }, body, confidences(line, row));
}

/** The question's name, which puts it into the address. */
function linkTo(id) {
  const button = el("button", { type: "button", class: "quiet", title: "Put this question into the address" },
    el("code", { dir: "auto" }, id));
  button.addEventListener("click", () => {
    for (const before of document.querySelectorAll(".question[data-at]")) before.removeAttribute("data-at");
    button.closest(".question").setAttribute("data-at", "");
    setChoices({ question: id }, true);
    announce("The address of this page now leads to this question");
  });
  return button;
}

const letterOf = (i) => String.fromCharCode(97 + i);

/** The options, with the gold one and the one that the model answered. */
function optionList(options, answered, gold) {
  return el("ol", { class: "options" }, ...options.map((option, i) => {
    const tags = [...(gold === letterOf(i) ? ["gold"] : []), ...(answered === i ? ["answer"] : [])];
    return el("li", { class: tags.join(" ") }, el("b", {}, letterOf(i)), clipped(option.trim()),
      ...tags.map((tag) => el("small", { class: "tag" }, tag)));
  }));
}

function answerItems(questions, row) {
  const answer = questions.answer[row];
  const text = answer ? clipped(answer, { class: "said" }) : el("span", { class: "muted" }, "no answer");
  const unread = answer && !questions.parsed[row] ? el("small", { class: "tag" }, "could not be read") : null;
  return [el("dt", {}, "Answer"), el("dd", {}, text, unread)];
}

/** How confident each method was, as bars. */
function confidences(line, row) {
  const bars = line.block.lines.filter(({ ok }) => ok).map((other) => {
    const value = line.block.questions.confidence[other.column][row];
    const share = value === null ? 0 : value / PARTS;
    return el("li", { class: other === line ? "own" : null, vars: { "--c": other.colour, "--x": String(share) } },
      isolate(other.name, { class: "who" }), el("span", { class: "bar", "aria-hidden": "true" }),
      el("span", { class: "num" }, value === null ? DASH : share.toFixed(3)));
  });
  return el("ul", { class: "bars", "aria-label": "Confidence of each method" }, ...bars);
}

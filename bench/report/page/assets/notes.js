// Footnotes, what the metrics are, and where the numbers come from.

function startNotes() {
  byId("footnotes").append(...DATA.footnotes.map((text, k) =>
    el("li", { id: `fn-${k + 1}`, dir: "auto", tabindex: "-1" }, text)));
  if (!DATA.footnotes.length) byId("footnotes").replaceWith(el("p", { class: "muted" }, "There is nothing to note."));
  byId("metric-list").append(...METRICS.map((metric) => el("div", {},
    el("dt", {}, metric.label + ARROWS[metric.better]),
    el("dd", {}, metric.about, " ", el("span", { class: "muted" }, metric.source)))));
  const { results, ok, dirty } = DATA.count;
  byId("provenance-facts").textContent = `${count(ok)} of ${count(results)} results are ok; `
    + `${dirty ? count(dirty) : "none"} of them made by code with uncommitted changes.`;
  byId("provenance-list").append(...DATA.provenance.map(([name, values]) => el("div", {},
    el("dt", {}, apart(name)),
    ...values.map(([value, there]) => el("dd", {}, apart(value),
      there < results ? el("small", { class: "muted" }, ` ${count(there)} of ${count(results)}`) : null)))));
}

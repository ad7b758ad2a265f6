// Elements made of data: whatever comes in goes in as text, never as markup.

const byId = (id) => document.getElementById(id);

/** An element; `on` holds listeners, `vars` CSS variables, other attributes are set as they are (null: left out). */
function el(tag, { on = {}, vars = {}, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  for (const [name, value] of Object.entries(vars)) node.style.setProperty(name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Options of a select, each [value, text]; the value stays chosen where it is still there. */
function setOptions(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** Text that other text can't reorder. */
const isolate = (text, attributes = {}) => el("bdi", attributes, text);

/** Read out by screen readers. */
function announce(text) {
  byId("live").textContent = text;
}

const CLIP = 700;

/** Text of any length; long text is shown by its ends, with a button for the rest. */
function clipped(text, attributes = {}) {
  const characters = [...text];
  if (characters.length <= CLIP) return el("div", { dir: "auto", ...attributes }, text);
  const short = `${characters.slice(0, CLIP / 2).join("")}\n…\n${characters.slice(-CLIP / 4).join("")}`;
  const body = el("div", { dir: "auto", ...attributes }, short);
  const button = el("button", { type: "button", class: "quiet", "aria-expanded": "false" });
  const label = (open) => (open ? "Show less" : `Show all ${count(characters.length)} characters`);
  button.textContent = label(false);
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "false";
    body.textContent = open ? text : short;
    button.setAttribute("aria-expanded", String(open));
    button.textContent = label(open);
  });
  return el("div", {}, body, button);
}

// --- what the page was written with ----------------------------------------------------------------------------------

const DATA = JSON.parse(byId("data").textContent);
const METRICS = DATA.metrics;
const PARTS = 10000;
const DASH = "–";
const ARROWS = { 1: " ↑", "-1": " ↓", 0: "" };
const LABELS = new Set(DATA.blocks.map(({ label }) => label));

for (const [b, block] of DATA.blocks.entries()) {
  block.index = b;
  block.name = [block.model, block.task, ...(LABELS.size > 1 && block.label ? [block.label] : [])].join(" · ");
  for (const [i, line] of block.lines.entries()) {
    line.block = block;
    line.index = i;
    line.name = DATA.methods[line.method].name + (line.variant ? ` (${line.variant})` : "");
    line.colour = DATA.methods[line.method].colour;
    line.ok = line.status === "ok";
  }
}

const LINES = DATA.blocks.flatMap((block) => block.lines);
const count = (n) => n.toLocaleString("en-US", { maximumFractionDigits: 1 });
const headingOf = ({ label, better }) => label + ARROWS[better];

/** The metric that another one is ranked and tested by, as the page was told. */
const judgedBy = (name) => METRICS.find((metric) => metric.name === name).judged_by;

/** The line's swatch, which has its colour everywhere. */
const swatch = (line) => el("span", { class: "swatch", vars: { "--c": line.colour }, "aria-hidden": "true" });

// --- tables ----------------------------------------------------------------------------------------------------------

/**
 * Let headings sort the rows of each body by what their cells stand for (`data-v`), or by their text.
 * @param onSort told the heading and the way, 1 up or -1 down, after a press
 */
function sortable(table, onSort = () => {}) {
  for (const head of table.tHead.rows[0].cells) {
    const button = el("button", { type: "button", title: head.title || null });
    button.append(...[...head.childNodes].filter(({ nodeName }) => nodeName !== "SMALL"),
      el("span", { class: "order", "aria-hidden": "true" }));
    head.prepend(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const first = Number(head.dataset.first ?? 1);
      const way = before ? (before === "ascending" ? -1 : 1) : first;
      sortBy(table, head, way);
      announce(`Sorted by ${button.textContent.trim()}, ${way > 0 ? "ascending" : "descending"}`);
      onSort(head, way);
    });
  }
}

/** Mark a heading as the one that sorts, and sort; without one, only the marks go. What has no value comes last. */
function sortBy(table, head, way) {
  for (const other of table.tHead.rows[0].cells) {
    const ways = other === head ? { 1: ["ascending", "▲"], "-1": ["descending", "▼"] }[way] : [null, ""];
    if (ways[0]) other.setAttribute("aria-sort", ways[0]);
    else other.removeAttribute("aria-sort");
    other.querySelector(".order").textContent = ways[1];
  }
  if (!head) return;
  const valueOf = (row) => {
    const cell = row.cells[head.cellIndex];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    return cell.matches(".num") ? null : cell.textContent;
  };
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.matches(".group, .part"));
    const keyed = rows.map((row) => [valueOf(row), row]);
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : way * compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  }
}

// Elements made of data: whatever comes in goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

/** An element; `on` holds listeners, `vars` CSS variables, other attributes are set as they are (null: left out). */
function el(tag, attributes = {}, ...children) {
  return furnished(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
function drawn(tag, attributes = {}, ...children) {
  return furnished(document.createElementNS(SVG, tag), attributes, children);
}

function furnished(node, { on = {}, vars = {}, ...attributes }, children) {
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
function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** Text that other text can't reorder. */
const apart = (text, attributes = {}) => el("bdi", attributes, text);

const unseen = (text) => el("span", { class: "hidden" }, text);

/** Read out by screen readers. */
function say(text) {
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

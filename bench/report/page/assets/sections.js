// One model and benchmark at a time in the comparison and among the diagrams; one metric of the overview.

const SHOWN_FIRST = 4;

/** The block that the address names, or the first. */
const chosenBlock = () => DATA.blocks.find(({ name }) => name === getChoice("block")) ?? DATA.blocks[0];

function startSections() {
  const selects = [...document.querySelectorAll("select[data-blocks]")];
  const draw = () => {
    const block = chosenBlock();
    for (const select of selects) select.value = block?.name ?? "";
    for (const part of document.querySelectorAll("[data-block]:not(tbody)")) {
      part.hidden = Number(part.dataset.block) !== block.index;
    }
    showDiagrams();
    showPair(block);
  };
  for (const select of selects) {
    setOptions(select, DATA.blocks.map(({ name }) => [name, name]));
    select.addEventListener("input", () => {
      setChoices({ block: select.value === DATA.blocks[0].name ? null : select.value });
      draw();
    });
  }
  onAddressChange(draw);
  draw();
  startOverview();
}

/** Names of the methods whose diagrams are chosen; names may hold anything, so each is encoded. */
function chosenDiagrams(names) {
  const listed = getChoice("reliability")?.split(",").filter(Boolean).map(decoded);
  return new Set(listed ?? names.slice(0, SHOWN_FIRST));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody wrote it by hand
  }
}

function showDiagrams() {
  const figures = [...document.querySelectorAll("#reliability [data-block]:not([hidden]) figure")];
  const shown = chosenDiagrams(figures.map(({ dataset }) => dataset.method));
  const draw = () => {
    for (const figure of figures) figure.hidden = !shown.has(figure.dataset.method);
  };
  byId("reliability-methods").replaceChildren(...figures.map((figure) => {
    const { method } = figure.dataset;
    const button = el("button", { type: "button", class: "chip", "aria-pressed": String(shown.has(method)) },
      isolate(method), figure.matches(".leads") ? el("small", {}, "leading") : null);
    button.addEventListener("click", () => {
      if (!shown.delete(method)) shown.add(method);
      button.setAttribute("aria-pressed", String(shown.has(method)));
      setChoices({ reliability: [...shown].map(encodeURIComponent).join(",") || "," });
      draw();
    });
    return button;
  }));
  draw();
}

function startOverview() {
  const tables = [...document.querySelectorAll("#overview table")];
  const select = byId("overview-metric");
  if (!tables.length) {
    byId("overview").hidden = true;
    document.querySelector("nav a[href='#overview']").hidden = true;
    return;
  }
  tables.forEach((table) => sortable(table));
  setOptions(select, tables.map(({ dataset }) => [METRICS[dataset.m].name, headingOf(METRICS[dataset.m])]));
  const draw = () => {
    for (const table of tables) table.hidden = METRICS[table.dataset.m].name !== select.value;
  };
  const restore = () => {
    const names = [...select.options].map(({ value }) => value);
    select.value = names.includes(getChoice("overview")) ? getChoice("overview") : DATA.headline;
    draw();
  };
  select.addEventListener("input", () => {
    setChoices({ overview: select.value === DATA.headline ? null : select.value });
    draw();
  });
  onAddressChange(restore);
  restore();
}

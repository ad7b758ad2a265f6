// Puts the page together.

function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

function start() {
  const distinct = (key) => new Set(DATA.blocks.map((block) => block[key])).size;
  byId("facts").textContent = [
    `preset ${DATA.preset}`, plural(DATA.methods.length, "method"), plural(distinct("model"), "model"),
    plural(distinct("task"), "benchmark"), plural(DATA.count.results, "result"),
    ...(LABELS.size === 1 ? [...LABELS].filter(Boolean) : []),
  ].join(" · ");
  startTheme();
  startLeaderboard();
  startCompare();
  startOverview();
  startReliability();
  startNotes();
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("details").hidden) location.hash = "#/";
  });
  route();
}

start();

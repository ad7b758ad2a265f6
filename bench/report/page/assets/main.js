// Puts the page together.

const NARROW = matchMedia("(max-width: 55rem)");

function start() {
  document.documentElement.dataset.scripted = "";
  const sentences = byId("sentences");
  if (sentences && NARROW.matches) sentences.open = false;
  const folded = [];
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) {
      fold.open = true;
      folded.push(fold);
    }
  });
  addEventListener("afterprint", () => {
    for (const fold of folded.splice(0)) fold.open = false;
  });
  addEventListener("submit", (event) => event.preventDefault()); // Enter in a form of choices
  startTheme();
  startLeaderboard();
  if (DATA.blocks.length) startSections();
  onAddressChange(openFromAddress);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("details").hidden) closeDetails();
  });
  openFromAddress();
  startAddress();
}

start();

// What is chosen stands in the address, so that a reload or a link shows the same view.

function addressed() {
  const text = location.hash.slice(1);
  return new Map(text.includes("=") ? [...new URLSearchParams(text)] : []);
}

let choices = addressed();

/** The value of a key; null where nothing is chosen. */
const chosen = (key) => choices.get(key) ?? null;

/** Write choices into the address; null leaves one out. */
function choose(changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) choices.delete(key);
    else choices.set(key, String(value));
  }
  history.replaceState(null, "", `#${new URLSearchParams([...choices])}`);
}

/** Have a function called when the address changes by navigation. */
function onChosen(listener) {
  addEventListener("hashchange", () => { choices = addressed(); listener(); });
}

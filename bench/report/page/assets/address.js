// Choices in the address: the part after #, as key=value pairs, where it is neither a section nor a number's address.

/** The pairs that the address holds now. */
function pairsOfAddress() {
  const text = location.hash.slice(1);
  return new URLSearchParams(text.includes("=") && !text.startsWith("/") ? text : "");
}

/** The value chosen for a key, or null. */
const chosen = (key) => pairsOfAddress().get(key);

/** Write choices into the address without a step in the history; null takes one out. */
function choose(values) {
  const pairs = pairsOfAddress();
  for (const [key, value] of Object.entries(values)) {
    if (value === null) pairs.delete(key);
    else pairs.set(key, value);
  }
  const text = pairs.toString();
  history.replaceState(history.state, "", text ? `#${text}` : location.pathname + location.search);
}

/** Called when the address changes by navigation. */
const onChosen = (listener) => addEventListener("hashchange", listener);

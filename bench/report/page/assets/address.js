// What is chosen on the page stands in its address, as `#key=value&…`: a reload or a link shows the same view.

/** `at` is the part of the page that a link led to; a bare `#id` means it too. Empty values are none. */
function readAddress() {
  const text = location.hash.slice(1);
  const pairs = [...new URLSearchParams(text.includes("=") ? text : `at=${text}`)];
  return new Map(pairs.filter(([, value]) => value));
}

let choices = readAddress();
const listeners = [];

/** The value of a key; null where nothing is chosen. Anybody can write an address: check what it says. */
const getChoice = (key) => choices.get(key) ?? null;

/**
 * Write choices into the address.
 * @param changes {key: value, or null for the default, which an address leaves out}
 * @param isStep whether the browser's Back undoes it
 */
function setChoices(changes, isStep = false) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") choices.delete(key);
    else choices.set(key, String(value));
  }
  const text = new URLSearchParams([...choices]).toString();
  if (text === location.hash.slice(1)) return;
  const address = text ? `#${text}` : location.href.split("#")[0];
  try {
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch {
    // A browser that allows no more changes for now: the choices hold until the page is closed.
  }
}

/** Have a function called when the address changes by navigation: Back, Forward, or an address typed in. */
function onAddressChange(listener) {
  listeners.push(listener);
}

/** Show the part of the page that the address names. */
function showPlace(id) {
  const place = id && /^[\w-]+$/.test(id) ? byId(id) : null;
  for (const before of document.querySelectorAll("[data-at]")) before.removeAttribute("data-at");
  if (!place) return;
  place.setAttribute("data-at", "");
  place.scrollIntoView();
  place.focus({ preventScroll: true });
}

function startAddress() {
  addEventListener("hashchange", () => {
    choices = readAddress();
    for (const listener of listeners) listener();
    if (getChoice("at")) showPlace(getChoice("at"));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    setChoices({ at: link.getAttribute("href").slice(1) }, true);
    showPlace(getChoice("at"));
  });
  if (getChoice("at")) showPlace(getChoice("at"));
}

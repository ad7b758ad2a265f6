// Light and dark: as the system says until the button is pressed; remembered where the browser lets a file remember.

const KEY = "confbench-theme";

function remembered() {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null;
  }
}

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  let theme = remembered();
  const show = () => {
    if (theme) document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-pressed", String((theme ?? (system.matches ? "dark" : "light")) === "dark"));
  };
  button.addEventListener("click", () => {
    theme = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // The choice holds until the page is closed.
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

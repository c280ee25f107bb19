// Dark, light, or as the system has it.
import { createStore } from "./store.js";

const KEY = "tidelog.theme";
const ORDER = ["system", "light", "dark"];
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement.dataset;

/** What was chosen; `data-theme` of the document says which of the two it comes to. */
export const theme = createStore(root.chosenTheme);
/** Changes whenever colours do, so that what draws on a canvas draws again. */
export const colours = createStore(0);

theme.subscribe((chosen) => {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // It holds until the page is closed.
  }
  paint();
});
systemDark.addEventListener("change", paint);

function paint() {
  const system = systemDark.matches ? "dark" : "light";
  root.theme = theme.get() === "system" ? system : theme.get();
  colours.set(colours.get() + 1);
}

export function nextTheme() {
  theme.set(ORDER[(ORDER.indexOf(theme.get()) + 1) % ORDER.length]);
}

/** A colour of tokens.css, as a canvas wants it. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

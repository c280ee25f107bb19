// The theme: dark, light, or that of the system.
import { createStore } from "./store.js";

const KEY = "tidelog.theme";
const ORDER = ["system", "light", "dark"];
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement.dataset;

/** The choice. `data-theme` of the document is the resulting theme. */
export const theme = createStore(root.chosenTheme);
/** Changes with the colours, so that canvases are drawn again. */
export const colours = createStore(0);

theme.subscribe((chosen) => {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Without storage the choice is lost when the page is closed.
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

/** A colour of tokens.css, for a canvas. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Dark, light, or as the system has it.
import { createStore } from "./store.js";

const KEY = "tidelog.theme";
const ORDER = ["system", "light", "dark"];
const systemDark = matchMedia("(prefers-color-scheme: dark)");

export const theme = createStore(document.documentElement.dataset.theme ?? "system");
/** Changes whenever colours do, so that what draws on a canvas draws again. */
export const colours = createStore(0);

theme.subscribe((chosen) => {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // It holds until the page is closed.
  }
  colours.set(colours.get() + 1);
});
systemDark.addEventListener("change", () => colours.set(colours.get() + 1));

export function nextTheme() {
  theme.set(ORDER[(ORDER.indexOf(theme.get()) + 1) % ORDER.length]);
}

/** A colour of tokens.css, as a canvas wants it. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

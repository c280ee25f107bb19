// Shortcuts: "g" and then the letter of a page, and single keys. They are inactive in input fields
// and dialogs.
import { go } from "./router.js";
import { createStore } from "./store.js";
import { nextTheme } from "./theme.js";

export const PAGES = [
  { page: "overview", name: "Overview", key: "o" },
  { page: "topics", name: "Topics", key: "t" },
  { page: "brokers", name: "Brokers", key: "b" },
  { page: "moves", name: "Moves", key: "m" },
  { page: "events", name: "Events", key: "e" },
  { page: "records", name: "Records", key: "r" },
];
export const HELP = [
  ...PAGES.map(({ name, key }) => ({ keys: ["g", key], does: name })),
  { keys: ["/"], does: "Search or filter this page" },
  { keys: ["n"], does: "First action of this page" },
  { keys: ["d"], does: "Theme: system, light or dark" },
  { keys: ["?"], does: "Show these keys" },
  { keys: ["Ctrl", "Enter"], does: "Produce the record of the form" },
  { keys: ["Esc"], does: "Close a dialog without a change" },
];
const PREFIX_MS = 1_500;

export const helpOpen = createStore(false);

let prefixAt = -Infinity;

export function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const afterG = event.timeStamp - prefixAt < PREFIX_MS;
    prefixAt = event.key === "g" ? event.timeStamp : -Infinity;
    if (afterG && open(event.key)) event.preventDefault();
    else if (act(event.key)) event.preventDefault();
  });
}

function open(key) {
  const found = PAGES.find((page) => page.key === key);
  if (found) go([found.page]);
  return Boolean(found);
}

function act(key) {
  if (key === "?") helpOpen.set(true);
  else if (key === "d") nextTheme();
  else if (key === "/") document.querySelector("main input[type=search]")?.focus();
  else if (key === "n") document.querySelector("main [data-first-act]")?.click();
  else return false;
  return true;
}

function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input, select, textarea") !== null;
}

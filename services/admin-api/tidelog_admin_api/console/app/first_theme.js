// Before anything is drawn, so that a page never flashes in the other theme. theme.js goes on.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tidelog.theme");
  } catch {
    // Storage may be forbidden; the system's theme it is then.
  }
  const isChosen = chosen === "dark" || chosen === "light";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  Object.assign(document.documentElement.dataset, {
    chosenTheme: isChosen ? chosen : "system",
    theme: isChosen ? chosen : system,
  });
})();

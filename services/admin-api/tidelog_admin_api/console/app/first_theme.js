// Before anything is drawn, so that a page never flashes in the other theme.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tidelog.theme");
  } catch {
    // Storage may be forbidden; the system's theme it is then.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();

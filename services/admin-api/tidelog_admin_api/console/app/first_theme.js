// Sets the theme before anything is drawn, so that no page flashes in another theme. theme.js does
// the rest.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tidelog.theme");
  } catch {
    // Without storage the system's theme applies.
  }
  const isChosen = chosen === "dark" || chosen === "light";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  Object.assign(document.documentElement.dataset, {
    chosenTheme: isChosen ? chosen : "system",
    theme: isChosen ? chosen : system,
  });
})();

// Pages by hash: #/topics/orders/3?tab=events. The address contains everything that a page shows,
// so that it can be shared.
import { createStore } from "./store.js";

export const route = createStore(read());

window.addEventListener("hashchange", () => route.set(read()));

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { page: parts[0] ?? "overview", parts: parts.slice(1), query: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `parts`: parts of the path; `query`: empty values are left out. */
export function href(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${search}`;
}

export function go(parts, query) {
  location.hash = href(parts, query);
}

/** Changes the query of the page without an entry in the browser's history. */
export function replaceQuery(parts, query) {
  history.replaceState(null, "", href(parts, query));
  route.set(read());
}

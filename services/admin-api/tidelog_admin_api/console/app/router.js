// Pages by hash: #/topics/orders/3?tab=events. What a page shows is in its address, so that it
// can be sent to somebody.
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

/** `parts`: of the path; `query`: empty values are left out. */
export function href(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const asked = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${asked}`;
}

export function go(parts, query) {
  location.hash = href(parts, query);
}

/** Another query of the same page, without a step in the browser's history. */
export function replaceQuery(parts, query) {
  history.replaceState(null, "", href(parts, query));
  route.set(read());
}

// The overview of the cluster, requested once for all components that show it.
import { get } from "./api.js";
import { NOTHING, after, poll } from "./live.js";
import { createStore } from "./store.js";

const EVERY_MS = 1_000;

/** The fields of `NOTHING` in live.js. */
export const overview = createStore(NOTHING);

export function followOverview() {
  return poll((signal) => get("cluster/overview", {}, signal), EVERY_MS, (result) =>
    overview.set(after(overview.get(), result, Date.now())),
  );
}

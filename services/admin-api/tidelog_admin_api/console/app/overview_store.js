// The overview of the cluster, requested once for all components that show it.
import { get } from "./api.js";
import { NOTHING, after, poll } from "./live.js";
import { createStore } from "./store.js";

const EVERY_MS = 1_000;
// Samples that charts show: ten minutes.
const MAX_SAMPLES = 600;

/** The fields of `NOTHING` in live.js. */
export const overview = createStore(NOTHING);
/** [{atMs, figures}]: the values that charts show, the oldest first. */
export const samples = createStore([]);

export function followOverview(sample) {
  return poll((signal) => get("cluster/overview", {}, signal), EVERY_MS, (result) => {
    overview.set(after(overview.get(), result, Date.now()));
    if (!result.data) return;
    const kept = samples.get().slice(1 - MAX_SAMPLES);
    samples.set([...kept, { atMs: Date.now(), figures: sample(result.data) }]);
  });
}

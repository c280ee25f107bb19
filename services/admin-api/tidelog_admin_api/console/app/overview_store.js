// How the cluster stands, asked once for all that shows it: the side on every page, the overview.
import { get } from "./api.js";
import { NOTHING, after, poll } from "./live.js";
import { createStore } from "./store.js";

const EVERY_MS = 1_000;
// So many samples are kept for pictures over time: ten minutes.
const MAX_SAMPLES = 600;

/** As `usePolled` tells it. */
export const overview = createStore(NOTHING);
/** [{atMs, figures}] of what pictures show over time, oldest first. */
export const samples = createStore([]);

export function followOverview(sample) {
  return poll((signal) => get("cluster/overview", {}, signal), EVERY_MS, (told) => {
    overview.set(after(overview.get(), told, Date.now()));
    if (!told.data) return;
    const kept = samples.get().slice(1 - MAX_SAMPLES);
    samples.set([...kept, { atMs: Date.now(), figures: sample(told.data) }]);
  });
}

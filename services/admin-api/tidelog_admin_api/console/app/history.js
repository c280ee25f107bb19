// The history of figures, which the gateway keeps: read once as a whole, and then continued.
import { useRef } from "./html.js";
import { get } from "./api.js";
import { usePolled } from "./live.js";

const EVERY_MS = 2_000;
// The gateway keeps one hour.
const KEPT_MS = 3_600_000;

/** The history of a cluster, topic, partition or brokers, as in GET /v1/history. Returns the result
 * of `usePolled`; `data`: {timesMs, series: [{name, broker, values}], beganMs, nowMs}. */
export function useHistory(query, paused = false) {
  const key = JSON.stringify(query);
  const kept = useRef({ key, points: null });
  if (kept.current.key !== key) kept.current = { key, points: null };
  const load = async (signal) => {
    const own = kept.current;
    own.points = await continued(own.points, query, signal);
    return own.points;
  };
  return usePolled(load, key, EVERY_MS, paused);
}

async function continued(points, query, signal) {
  const sinceMs = points?.timesMs.at(-1) ?? 0;
  const answer = await get("history", { ...query, since_ms: sinceMs }, signal);
  if (!points || follows(points, answer)) return joined(points, answer);
  return joined(null, sinceMs ? await get("history", query, signal) : answer);
}

/** Whether the answer has the same series, and its clock has not gone back. */
function follows(points, answer) {
  const names = (series) => series.map((one) => `${one.name} ${one.broker ?? one.broker_id}`).join();
  return names(points.series) === names(answer.series) && answer.now_ms >= (points.timesMs.at(-1) ?? 0);
}

/** The points with those of the answer behind them. Between points of a gateway that has ended and
 * those of its successor is a gap. */
export function joined(points, answer) {
  const before = points?.timesMs ?? [];
  const first = before.findIndex((timeMs) => timeMs >= answer.now_ms - KEPT_MS);
  const kept = first < 0 ? [] : before.slice(first);
  const isCut = kept.length > 0 && answer.times_ms.length > 0 && answer.began_ms > kept.at(-1);
  const gap = isCut ? [kept.at(-1) + 1] : [];
  return {
    timesMs: [...kept, ...gap, ...answer.times_ms],
    series: answer.series.map(({ name, broker_id: broker, values }, n) => ({
      name,
      broker,
      values: [...(kept.length ? points.series[n].values.slice(first) : []), ...gap.map(() => null), ...values],
    })),
    beganMs: kept[0] ?? answer.began_ms,
    nowMs: answer.now_ms,
  };
}

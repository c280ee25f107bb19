// Which brokers may get replicas, and what is wrong with the replicas chosen for a partition. The
// controller decides; these rules explain its rejections before a dry run. Pure.
import { plural } from "./format.js";
import { statusOf } from "./verdict.js";

/** Why a broker cannot get a replica, for example "gone"; empty: it can. `current`: the present replicas,
 * which may stay in any state of their brokers. */
export function blockedWord(broker, current = []) {
  if (current.includes(broker.broker_id)) return "";
  return broker.status !== "running" || broker.removed ? `${statusOf(broker)[1]}: gets no new replicas` : "";
}

/** What to consider before a broker is chosen; empty: nothing. */
export function cautionOf(broker) {
  if (broker.status !== "running") return "a move waits until it is in sync";
  if (broker.maintenance) return "leads nothing while in maintenance";
  if (broker.removed) return "is being drained";
  return "";
}

/**
 * A sentence on the replicas chosen for a partition that would be rejected; empty: they are valid.
 * `target`: broker ids, the preferred leader first; `current`: the present replicas; `minIsr`: the
 * min_insync_replicas that is set for the topic, 0: none.
 */
export function wrongTarget(target, { current, minIsr, brokers }) {
  if (target.length === 0) return "Choose at least one broker.";
  const twice = target.find((id, at) => target.indexOf(id) !== at);
  if (twice !== undefined) return `Broker ${twice} is chosen twice: it holds at most one replica of a partition.`;
  if (target.length < minIsr) {
    return `min_insync_replicas of the topic is ${minIsr}, which ${plural(target.length, "replica")} can never meet. Choose at least ${minIsr} brokers, or lower min_insync_replicas first.`;
  }
  for (const id of target) {
    const broker = brokers.find((one) => one.broker_id === id);
    if (!broker) return `Broker ${id} is not known.`;
    if (blockedWord(broker, current)) return `Broker ${id} is ${statusOf(broker)[1]} and gets no new replicas.`;
  }
  return "";
}

/** The target for the partition at a position of a list: another broker of it comes first each time. */
export function rotated(target, at) {
  const from = target.length ? at % target.length : 0;
  return [...target.slice(from), ...target.slice(0, from)];
}

/** `target` with the broker at a position one place earlier. */
export function movedUp(target, at) {
  return target.map((id, n) => (n === at - 1 ? target[at] : n === at ? target[at - 1] : id));
}

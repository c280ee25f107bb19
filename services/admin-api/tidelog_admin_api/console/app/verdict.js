// The state of a cluster and its parts in one place: tone and words.
import { NONE, number, plural } from "./format.js";

const TONES = { critical: "bad", warning: "warn", info: "note" };
const ORDER = ["critical", "warning", "info"];

export function toneOf(severity) {
  return TONES[severity] ?? "note";
}

const BY_HEALTH = { ok: "ok", warning: "warn", critical: "bad", unknown: "" };
const BY_DEFAULT = {
  ok: "All is well",
  warning: "The cluster has problems",
  critical: "A part of the cluster is unavailable",
  unknown: "The state of the cluster is unknown",
};

/** {tone, short, long}: the worst problem, in a few words and in a sentence. */
export function verdict(data) {
  if (!data) return { tone: "", short: "Loading…", long: "Loading the state of the cluster…" };
  const { counts } = data;
  const gone = data.brokers.filter(isMissed);
  const worst = data.findings.find((finding) => TONES[finding.severity] === BY_HEALTH[data.health]);
  const tone = BY_HEALTH[data.health] ?? "";
  if (counts.without_leader) return stated("bad", `${plural(counts.without_leader, "partition")} without a leader`, "No leader");
  if (counts.below_min_isr) return stated("bad", `${plural(counts.below_min_isr, "partition")} under min ISR`, "Under min ISR");
  if (gone.length) return stated(tone === "bad" ? "bad" : "warn", goneWords(gone), `${plural(gone.length, "broker")} gone`);
  if (worst) return stated(tone, worst.summary, tone === "bad" ? "Unavailable" : "Problems");
  if (counts.under_replicated) return stated("warn", `${plural(counts.under_replicated, "partition")} with replicas out of sync`, "Out of sync");
  if (data.health === "warning" && !data.controller) return stated("warn", "No controller is active", "No controller");
  return stated(tone, BY_DEFAULT[data.health] ?? data.health);
}

function stated(tone, long, short = long) {
  return { tone, short, long };
}

function goneWords(gone) {
  return gone.length === 1 ? `Broker ${gone[0].broker_id} is gone` : `Brokers ${gone.map((b) => b.broker_id).join(", ")} are gone`;
}

export function inOrderOfSeverity(findings) {
  return [...findings].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
}

/** Whether the broker is gone and was not removed, or still holds replicas. */
export function isMissed(broker) {
  return broker.status === "gone" && (broker.replicas > 0 || !broker.removed);
}

const STATUS = {
  running: ["ok", "running"],
  stopping: ["warn", "stopping"],
  gone: ["bad", "gone"],
};

/** [tone, word] of a broker. */
export function statusOf(broker) {
  if (broker.status === "gone" && !isMissed(broker)) return ["", "removed"];
  if (broker.status === "running" && broker.maintenance) return ["note", "maintenance"];
  if (broker.status === "running" && broker.removed) return ["note", broker.replicas ? "draining" : "removed"];
  if (broker.status === "running" && broker.not_added) return ["note", "not added"];
  return STATUS[broker.status] ?? ["", broker.status || NONE];
}

/** Whether the broker of the replica reports it. The leader may still report the log end of a
 * replica whose broker is silent. */
export function isReported(replica) {
  return replica.role !== "unknown" && replica.log_end_offset != null;
}

/** [tone, word] of a replica; `broker`: its broker in the overview, nullish until that is loaded. */
export function replicaState(replica, broker) {
  if (replica.role === "damaged") return ["bad", "damaged"];
  if (!isReported(replica)) return ["bad", broker && broker.status !== "running" ? statusOf(broker)[1] : "not reported"];
  if (replica.role === "leader") return ["ok", "leader"];
  if (replica.in_sync) return ["ok", "in sync"];
  return replica.moving === "adding" ? ["note", "catching up"] : ["warn", "out of sync"];
}

/** Whether the partition has a leader. A missing leader is null. */
export function isLed({ leader }) {
  return leader != null && leader >= 0;
}

/** [tone, word] of a partition. */
export function healthOf(partition) {
  const moving = partition.moving_operation !== "";
  const expected = partition.replicas.length - partition.adding_replicas.length;
  if (!isLed(partition)) return ["bad", "no leader"];
  if (partition.isr.length < partition.min_isr) return ["bad", "under min ISR"];
  if (partition.isr.length < expected) return ["warn", "out of sync"];
  return moving ? ["note", "moving"] : ["ok", "in sync"];
}

/** [tone, word] of a topic: the worst of its partitions. */
export function topicState(topic) {
  if (topic.deleting) return ["warn", "being deleted"];
  if (topic.partitions_being_removed > 0) return ["warn", "partitions being removed"];
  if (topic.without_leader > 0) return ["bad", `${number(topic.without_leader)} without a leader`];
  if (topic.below_min_isr > 0) return ["bad", `${number(topic.below_min_isr)} under min ISR`];
  if (topic.under_replicated > 0) return ["warn", `${number(topic.under_replicated)} out of sync`];
  return ["ok", "in sync"];
}

const OPERATIONS = { running: "note", cancelling: "warn", done: "ok", cancelled: "", failed: "bad" };

/** The tone of the state of an operation. */
export function toneOfOperation(state) {
  return OPERATIONS[state] ?? "";
}

// What is told of a cluster and its parts, in one place: its tone, its words, and its figures over
// time.
import { NONE, number, plural } from "./format.js";

const TONES = { critical: "bad", warning: "warn", info: "note" };
const ORDER = ["critical", "warning", "info"];

export function toneOf(severity) {
  return TONES[severity] ?? "note";
}

const BY_HEALTH = { ok: "ok", warning: "warn", critical: "bad", unknown: "" };
const WHATEVER = {
  ok: "All is well",
  warning: "Something is not as it should be",
  critical: "Something is not available",
  unknown: "Nobody tells how the cluster stands",
};

/** {tone, short, long}: the worst that there is, in a word and in a sentence. */
export function verdict(data) {
  if (!data) return { tone: "", short: "Looking…", long: "Looking how the cluster stands…" };
  const { counts } = data;
  const gone = data.brokers.filter(isMissed);
  const worst = data.findings.find((finding) => TONES[finding.severity] === BY_HEALTH[data.health]);
  const tone = BY_HEALTH[data.health] ?? "";
  if (counts.without_leader) return told("bad", `${plural(counts.without_leader, "partition")} without a leader`, "No leader");
  if (counts.below_min_isr) return told("bad", `${plural(counts.below_min_isr, "partition")} under min ISR`, "Under min ISR");
  if (gone.length) return told(tone === "bad" ? "bad" : "warn", goneWords(gone), `${plural(gone.length, "broker")} gone`);
  if (worst) return told(tone, worst.summary, tone === "bad" ? "Not available" : "Not all is well");
  if (counts.under_replicated) return told("warn", `${plural(counts.under_replicated, "partition")} with replicas out of sync`, "Out of sync");
  if (data.health === "warning" && !data.controller) return told("warn", "No controller is active", "No controller");
  return told(tone, WHATEVER[data.health] ?? data.health);
}

function told(tone, long, short = long) {
  return { tone, short, long };
}

function goneWords(gone) {
  return gone.length === 1 ? `Broker ${gone[0].broker_id} is gone` : `Brokers ${gone.map((b) => b.broker_id).join(", ")} are gone`;
}

export function inOrderOfSeverity(findings) {
  return [...findings].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
}

/** Gone, and somebody may miss it. */
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

/** Whether somebody leads it; nobody is null. */
export function isLed({ leader }) {
  return leader != null && leader >= 0;
}

/** [tone, word] of a partition. */
export function healthOf(partition) {
  const moving = partition.moving_operation !== "";
  const wanted = partition.replicas.length - partition.adding_replicas.length;
  if (!isLed(partition)) return ["bad", "no leader"];
  if (partition.isr.length < partition.min_isr) return ["bad", "under min ISR"];
  if (partition.isr.length < wanted) return ["warn", "out of sync"];
  return moving ? ["note", "moving"] : ["ok", "in sync"];
}

/** [tone, word] of a topic: the worst of its partitions. */
export function topicState(topic) {
  if (topic.deleting) return ["warn", "being deleted"];
  if (topic.partitions_being_removed > 0) return ["warn", "losing partitions"];
  if (topic.without_leader > 0) return ["bad", `${number(topic.without_leader)} without a leader`];
  if (topic.below_min_isr > 0) return ["bad", `${number(topic.below_min_isr)} under min ISR`];
  if (topic.under_replicated > 0) return ["warn", `${number(topic.under_replicated)} out of sync`];
  return ["ok", "in sync"];
}

const OPERATIONS = { running: "note", cancelling: "warn", done: "ok", cancelled: "", failed: "bad" };

/** Of the state of an operation. */
export function toneOfOperation(state) {
  return OPERATIONS[state] ?? "";
}

/** What pictures over time show of an overview. */
export function sampled({ counts }) {
  return { underReplicated: counts.under_replicated, withoutLeader: counts.without_leader };
}

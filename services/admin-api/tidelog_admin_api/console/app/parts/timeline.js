// State changes in the order of time. Each has its kind, cause, place and duration.
import { html, useRef, useState } from "../html.js";
import { clock, duration, exactTime, kindWords, words } from "../format.js";
import { Empty, PartitionLink, TopicLink } from "./basics.js";

const BAD = new Set(["leader_lost", "unclean_election", "replica_damaged", "batch_damaged", "replica_diverged", "broker_fenced", "broker_left", "store_lost", "registration_lost", "disk_refused"]);
const WARN = new Set(["isr_shrink", "resignation", "hw_stalled", "leader_unreachable", "connection_lost", "command_overdue", "broker_stalled", "broker_stopping", "truncation"]);
const GOOD = new Set(["isr_expand", "replica_repaired", "hw_moves_again", "broker_joined", "store_back", "leader_reached", "disk_takes_again"]);
const MAX_DETAIL = 160;
// Each entry has a dozen elements, so that more are drawn only on request.
const SHOWN_AT_ONCE = 50;

export function toneOfEvent({ kind, stage }) {
  if (stage === "failed" || BAD.has(kind)) return "bad";
  if (WARN.has(kind)) return "warn";
  if (GOOD.has(kind)) return "ok";
  return stage === "completed" || stage === "acknowledged" ? "note" : "";
}

/** `events`: in the order of the list, each with `at`; `about`: whether to name their subject. */
export function Timeline({ events, about = true, empty = "There are no events yet." }) {
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  // Events never change, so their elements are neither drawn nor compared again.
  const drawn = useRef(new Map());
  if (!events.length) return html`<${Empty} title=${empty} />`;
  const entries = events.slice(0, count).map((event) => [
    event.id,
    drawn.current.get(event.id) ?? html`<${Entry} key=${event.id} event=${event} about=${about} />`,
  ]);
  drawn.current = new Map(entries);
  return html`<ol class="timeline">${entries.map(([, entry]) => entry)}</ol>
    ${events.length > count && html`<p class="toolbar plain"><button class="button" onClick=${() => setCount(count + SHOWN_AT_ONCE)}>Show older events</button></p>`}`;
}

/** Events that may be missing: of services that did not answer, and of the topic of state changes if
 * it was not read completely. */
export function Missing({ list: { silent, notes } }) {
  const lines = [...silent.map(({ address, problem }) => `${address} did not answer (${problem}): events that only it remembers are missing.`), ...notes];
  if (!lines.length) return null;
  return html`<ul class="missing small" aria-label="What may be missing">${lines.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`;
}

function Entry({ event, about }) {
  return html`<li class=${toneOfEvent(event)}>
    <time datetime=${exactTime(event.at)} title=${exactTime(event.at)}>${clock(event.at, true)}</time>
    <div>
      <div class="row"><span class="what">${kindWords(event.kind)}</span><span class="tag">${event.stage}</span>
        ${about && event.topic && html`<span>${event.partition >= 0 ? html`<${PartitionLink} ...${event} />` : html`<${TopicLink} topic=${event.topic} />`}</span>`}
        ${event.broker >= 0 && html`<span class="dim">broker ${event.broker}</span>`}
        ${event.duration_ms >= 0 && html`<span class="faint small">after ${duration(event.duration_ms)}</span>`}
      </div>
      <div class="beside">${besides(event)}</div>
    </div>
  </li>`;
}

function besides(event) {
  const parts = [`reported by ${event.service}`];
  if (event.cause) parts.unshift(`because ${words(event.cause)}`);
  const change = changeOf(event.details ?? {});
  if (change) parts.unshift(change);
  return parts.join(" · ");
}

/** The details as text, beginning with the leader and the ISR. */
function changeOf(details) {
  const { leader, leader_before: leaderBefore, isr, isr_before: isrBefore, ...rest } = details;
  const parts = [];
  if (leader !== undefined) {
    const moved = leaderBefore !== undefined && leaderBefore !== leader;
    parts.push(moved ? `leader ${nameOf(leaderBefore)} → ${nameOf(leader)}` : `leader ${nameOf(leader)}`);
  }
  if (isr !== undefined) {
    const changed = isrBefore !== undefined && String(isrBefore) !== String(isr);
    parts.push(changed ? `in sync ${isrBefore.join(", ") || "none"} → ${isr.join(", ") || "none"}` : `in sync ${isr.join(", ") || "none"}`);
  }
  for (const [key, value] of Object.entries(rest)) {
    const text = `${words(key)} ${Array.isArray(value) ? value.join(", ") : value}`;
    parts.push(text.length > MAX_DETAIL ? `${text.slice(0, MAX_DETAIL)}…` : text);
  }
  return parts.join("; ");
}

function nameOf(broker) {
  return broker < 0 ? "none" : broker;
}

// State changes in the order of time, each in a line that says what, why, where and how long.
import { html, useRef, useState } from "../html.js";
import { clock, duration, exactTime, kindWords, words } from "../format.js";
import { Empty, PartitionLink, TopicLink } from "./basics.js";

const BAD = new Set(["leader_lost", "unclean_election", "replica_damaged", "batch_damaged", "replica_diverged", "broker_fenced", "broker_left", "store_lost", "registration_lost", "disk_refused"]);
const WARN = new Set(["isr_shrink", "resignation", "hw_stalled", "leader_unreachable", "connection_lost", "command_overdue", "broker_stalled", "broker_stopping", "truncation"]);
const GOOD = new Set(["isr_expand", "replica_repaired", "hw_moves_again", "broker_joined", "store_back", "leader_reached", "disk_takes_again"]);
const MAX_DETAIL = 160;
// Each is a dozen elements: more are drawn when somebody asks for them.
const SHOWN_AT_ONCE = 50;

export function toneOfEvent({ kind, stage }) {
  if (stage === "failed" || BAD.has(kind)) return "bad";
  if (WARN.has(kind)) return "warn";
  if (GOOD.has(kind)) return "ok";
  return stage === "completed" || stage === "acknowledged" ? "note" : "";
}

/** `events`: in the order in which they are shown, each with `at`; `about`: name what it is about. */
export function Timeline({ events, about = true, empty = "Nothing has happened yet." }) {
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  // An event never changes: what was drawn of it once is not drawn, nor compared, again.
  const drawn = useRef(new Map());
  if (!events.length) return html`<${Empty} title=${empty} />`;
  const entries = events.slice(0, count).map((event) => [
    event.id,
    drawn.current.get(event.id) ?? html`<${Entry} key=${event.id} event=${event} about=${about} />`,
  ]);
  drawn.current = new Map(entries);
  return html`<ol class="timeline">${entries.map(([, entry]) => entry)}</ol>
    ${events.length > count && html`<p class="toolbar plain"><button class="button" onClick=${() => setCount(count + SHOWN_AT_ONCE)}>Show older ones</button></p>`}`;
}

/** What may be missing in a list of events: what services know that did not answer, and what of the
 * topic of state changes was not read. */
export function Missing({ list: { silent, notes } }) {
  const told = [...silent.map(({ address, problem }) => `${address} did not answer (${problem}): what it alone knows is missing.`), ...notes];
  if (!told.length) return null;
  return html`<ul class="missing small" aria-label="What may be missing">${told.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`;
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
  const parts = [`told by ${event.service}`];
  if (event.cause) parts.unshift(`because ${words(event.cause)}`);
  const change = changeOf(event.details ?? {});
  if (change) parts.unshift(change);
  return parts.join(" · ");
}

/** The details, those that people ask for first in words. */
function changeOf(details) {
  const { leader, leader_before: leaderBefore, isr, isr_before: isrBefore, ...rest } = details;
  const parts = [];
  if (leader !== undefined) {
    const moved = leaderBefore !== undefined && leaderBefore !== leader;
    parts.push(moved ? `leader ${nobody(leaderBefore)} → ${nobody(leader)}` : `leader ${nobody(leader)}`);
  }
  if (isr !== undefined) {
    const changed = isrBefore !== undefined && String(isrBefore) !== String(isr);
    parts.push(changed ? `in sync ${isrBefore.join(", ") || "nobody"} → ${isr.join(", ") || "nobody"}` : `in sync ${isr.join(", ") || "nobody"}`);
  }
  for (const [key, value] of Object.entries(rest)) {
    const text = `${words(key)} ${Array.isArray(value) ? value.join(", ") : value}`;
    parts.push(text.length > MAX_DETAIL ? `${text.slice(0, MAX_DETAIL)}…` : text);
  }
  return parts.join("; ");
}

function nobody(broker) {
  return broker < 0 ? "nobody" : broker;
}

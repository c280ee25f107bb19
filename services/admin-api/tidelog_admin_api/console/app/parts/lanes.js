// Leaders and ISR of a partition over time, by broker, from its state changes.
import { html } from "../html.js";
import { clock } from "../format.js";
import { Empty } from "./basics.js";

/** `events`: newest first, each with `at` in milliseconds. */
export function Lanes({ events, partition }) {
  const states = statesOf(events);
  if (!states.length) return html`<${Empty} title="No event names a leader.">Leader and ISR are taken from the state changes of the partition.<//>`;
  const from = states[0].at;
  const until = Math.max(Date.now(), from + 1_000);
  const lanes = [...new Set([...partition.replicas, ...states.flatMap((state) => state.isr)])].sort((a, b) => a - b);
  const across = (time) => (100 * (time - from)) / (until - from);
  return html`<div class="lanes">
    ${lanes.map((broker) => html`<div class="lane" key=${broker}>
      <span>Broker ${broker}</span>
      <div class="line" role="img" aria-label=${textOf(broker, states, until)}>${spans(broker, states, until).map(
        (span) => html`<i class=${span.kind} title=${`${span.kind === "leads" ? "led" : "in sync"} from ${clock(span.from)}`}
          style=${{ left: `${across(span.from)}%`, width: `${across(span.until) - across(span.from)}%` }}></i>`,
      )}</div>
    </div>`)}
    <div class="lane"><span></span><div class="scale"><span>${clock(from)}</span><span>now</span></div></div>
    <div class="legend"><span><i class="leader"></i>led</span><span><i></i>in sync</span><span class="faint">empty: neither</span></div>
  </div>`;
}

/** [{at, leader, isr}], the oldest first: the states of the partition's key. */
function statesOf(events) {
  return events
    .filter((event) => event.stage === "completed" && event.broker === undefined && Array.isArray(event.details?.isr) && event.details.leader !== undefined)
    .map((event) => ({ at: event.at, leader: event.details.leader, isr: event.details.isr }))
    .reverse();
}

function spans(broker, states, until) {
  const found = [];
  states.forEach((state, n) => {
    const kind = state.leader === broker ? "leads" : state.isr.includes(broker) ? "follows" : "";
    const end = states[n + 1]?.at ?? until;
    const last = found.at(-1);
    if (last && last.kind === kind && last.until === state.at) last.until = end;
    else if (kind) found.push({ kind, from: state.at, until: end });
  });
  return found;
}

function textOf(broker, states, until) {
  const parts = spans(broker, states, until).map((span) => `${span.kind === "leads" ? "led" : "in sync"} from ${clock(span.from)} to ${span.until === until ? "now" : clock(span.until)}`);
  return `Broker ${broker}: ${parts.join(", ") || "neither led nor in sync"}`;
}

// A plan: number of moves, replicas and leaders of each broker, and all moves.
import { html } from "../html.js";
import { brokers, number, plural } from "../format.js";
import { Empty } from "./basics.js";
import { Table } from "./table.js";

export function PlanView({ plan }) {
  if (plan.move_count === 0) {
    return html`<${Empty} title="The plan has no moves.">The cluster already has the target state.<//><${Warnings} plan=${plan} />`;
  }
  return html`<p>
      <strong>${plural(plan.move_count, "partition")}</strong> would change replicas:
      ${" "}<strong>${plural(plan.replicas_added, "replica")}</strong> would be copied${least(plan)},
      ${" "}and ${plural(plan.leaders_changed, "preferred leader")} would change.
    </p>
    <${Warnings} plan=${plan} />
    ${plan.brokers.length > 0 && html`<${Shares} brokers=${plan.brokers} />`}
    ${plan.moves.length > 0 && html`<details>
      <summary>All moves</summary>
      <${MoveTable} moves=${plan.moves} />
    </details>`}`;
}

export function Warnings({ plan }) {
  return plan.warnings.map((warning) => html`<p class="warned" key=${warning}>${warning}</p>`);
}

function least(plan) {
  const minimum = plan.minimum_replicas_added;
  return minimum == null ? "" : ` (the minimum for this balance: ${number(minimum)})`;
}

function Shares({ brokers: shares }) {
  const columns = [
    { name: "Broker", width: "90px", value: (share) => share.broker_id },
    { name: "Replicas", num: true, show: (s) => html`<${Change} from=${s.replicas_before} to=${s.replicas_after} />` },
    { name: "Preferred leader of", num: true, show: (s) => html`<${Change} from=${s.leaders_before} to=${s.leaders_after} />` },
  ];
  return html`<${Table} label="Brokers before and after" columns=${columns} rows=${shares}
    rowKey=${(share) => share.broker_id} />`;
}

function Change({ from, to }) {
  if (from === to) return html`${number(to)}`;
  return html`<span class="before-after">
    <span class="faint">${number(from)}</span><span aria-label="to">→</span><strong>${number(to)}</strong>
    <span class=${to > from ? "gained" : "lost"}>${to > from ? "+" : "−"}${number(Math.abs(to - from))}</span>
  </span>`;
}

function MoveTable({ moves }) {
  const columns = [
    { name: "Partition", value: (move) => `${move.topic}/${move.partition}` },
    { name: "From brokers", width: "28%", show: (move) => brokers(move.original) },
    { name: "To brokers", width: "28%", show: (move) => brokers(move.target) },
  ];
  return html`<${Table} label="Moves" columns=${columns} rows=${moves}
    rowKey=${(move) => `${move.topic}/${move.partition}`} />`;
}

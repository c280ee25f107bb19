// Changes of brokers. Each shows its effects first.
import { html, useState } from "../html.js";
import { at, change, get, newOperationId } from "../api.js";
import { PREFERRED_RETURN, number, plural, words } from "../format.js";
import { usePolled } from "../live.js";
import { href } from "../router.js";
import { Act } from "./act.js";
import { Dialog, Empty, PartitionLink, Stale, State, Waiting, notify } from "./basics.js";
import { BrokerChoice, turned } from "./broker_choice.js";
import { PlanView } from "./plan.js";
import { Table } from "./table.js";

const CHECK_EVERY_MS = 2_000;

/** Notifies of a started operation. */
export function begun({ operation, plan }) {
  if (!operation) return;
  const text = operation.state === "done" ? "No moves were needed: the operation is done." : `The operation has started: ${plural(plan?.move_count ?? operation.progress.moves, "move")}.`;
  notify(text, { name: "Follow it", target: href(["moves", operation.operation_id]) });
}

const BALANCES = {
  rebalance: { path: "rebalance", title: "Rebalance", verb: "Begin to move", hint: "" },
  add: { path: "brokers/add", title: "Add brokers", verb: "Add them, and begin to move", hint: "Brokers that get a share of replicas and leaders:" },
  remove: { path: "brokers/remove", title: "Remove brokers", verb: "Begin to drain", hint: "Brokers that lose all replicas; when the operation is done they can be stopped permanently:" },
};

/** `chosen`: ids of brokers that are selected at first. */
export function BalanceAct({ kind, chosen = [], brokers = [], onClose }) {
  const { path, title, verb, hint } = BALANCES[kind];
  const [ids, setIds] = useState(chosen);
  const [operationId] = useState(newOperationId);
  const body = kind === "rebalance" ? {} : { broker_ids: ids };
  const send = (query, more = {}) => change("POST", path, { ...body, ...more }, { query });
  const form = kind === "rebalance" ? undefined : html`<${BrokerChoice} legend=${hint} brokers=${brokers} chosen=${ids} onChange=${(id) => setIds(turned(ids, id))}
    blockedOf=${(one) => (kind === "add" && one.status !== "running" ? "has to run to be added" : "")} />`;
  return html`<${Act} title=${title} verb=${verb} danger=${kind === "remove"} form=${form} ready=${kind === "rebalance" || ids.length > 0}
    subject=${ids.join(",")} plan=${() => send({ dry_run: true })} show=${({ plan }) => html`<${PlanView} plan=${plan} />`}
    reject=${({ plan }) => kind === "rebalance" && plan.move_count === 0 && "No moves are needed."}
    run=${({ plan }) => send({}, { operation_id: operationId, expected_plan: plan.digest })} done=${begun} onClose=${onClose} />`;
}

export function MaintenanceAct({ broker, onClose }) {
  const begins = !broker.maintenance;
  const name = `broker ${broker.broker_id}`;
  const send = (query) => change("PUT", at("brokers", broker.broker_id, "maintenance"), { maintenance: begins }, { query });
  return html`<${Act} title=${begins ? `Maintenance of ${name}` : `End the maintenance of ${name}`} verb=${begins ? "Begin maintenance" : "End maintenance"} narrow
    plan=${() => send({ dry_run: true })} show=${(plan) => html`<${Maintenance} plan=${plan} begins=${begins} />`}
    run=${() => send({})} done=${(answer) => notify(begins ? inMaintenance(broker, answer) : `The maintenance of ${name} has ended.`)} onClose=${onClose} />`;
}

function inMaintenance(broker, { leaders }) {
  const waiting = leaders.filter((one) => one.error).length;
  const still = waiting > 0 ? ` It still leads ${plural(waiting, "partition")}; leadership is transferred one by one.` : "";
  return `Broker ${broker.broker_id} is in maintenance.${still}`;
}

function Maintenance({ plan, begins }) {
  if (!begins) return html`<p>The broker may lead again. ${PREFERRED_RETURN} “Preferred leaders” does so at once.</p>`;
  return html`<p><strong>${plural(plan.leaders.length, "partition")}</strong> of this broker would be led by others. It keeps its
    replicas, and they stay in sync.</p>
    ${plan.leaders_kept > 0 && html`<p class="warned">It would continue to lead ${plural(plan.leaders_kept, "partition")}, because no other replica can without loss.</p>`}`;
}

export function PreferredAct({ onClose }) {
  const send = (query) => change("POST", "leaders/elect-preferred", {}, { query });
  const columns = [
    { name: "Partition", value: (p) => `${p.topic}/${p.partition}` },
    { name: "Leader now", width: "110px", num: true, show: (p) => number(p.leader_before) },
    { name: "Leader after", width: "110px", num: true, show: (p) => number(p.leader) },
    { name: "Problem", width: "30%", show: (p) => html`<span class="dim" title=${p.error?.message}>${p.error?.message ?? ""}</span>` },
  ];
  return html`<${Act} title="Elect preferred replicas" verb="Elect them"
    plan=${() => send({ dry_run: true })}
    show=${(plan) => html`<p class="dim">${PREFERRED_RETURN}</p><${Table} label="Leaders that would change" columns=${columns} rows=${plan.items} rowKey=${(p) => `${p.topic}/${p.partition}`} empty="Every partition is led by its preferred replica." />`}
    reject=${(plan) => plan.items.length === 0 && "Preferred replicas lead already."}
    run=${() => send({})}
    done=${(answer) => notify(elected(answer.items))} onClose=${onClose} />`;
}

function elected(items) {
  const late = items.filter((one) => one.error);
  const led = `${plural(items.length - late.length, "partition")} led by preferred replicas again.`;
  return late.length > 0 ? `${led} ${number(late.length)} not yet: ${late[0].error.message}` : led;
}

const EFFECTS = {
  unavailable: "bad",
  under_min_isr: "bad",
  last_replica: "warn",
  leader_moves: "note",
};

export function RestartCheck({ broker, onClose }) {
  const path = at("brokers", broker.broker_id, "restart-check");
  const known = usePolled((signal) => get(path, {}, signal), path, CHECK_EVERY_MS);
  return html`<${Dialog} title=${`If broker ${broker.broker_id} were stopped now`} onClose=${onClose}>
    <${Stale} of=${known} />
    ${known.data ? html`<${Checked} check=${known.data} />` : html`<${Waiting} of=${known} />`}
  <//>`;
}

function Checked({ check }) {
  const findings = check.items;
  const columns = [
    { name: "Partition", value: (f) => `${f.topic}/${f.partition}`, show: (f) => html`<${PartitionLink} ...${f} />` },
    { name: "Effect", width: "150px", value: (f) => f.effect, show: (f) => html`<${State} tone=${EFFECTS[f.effect]}>${words(f.effect).replace("isr", "ISR")}<//>` },
    { name: "Reason", width: "45%", show: (f) => html`<span class="dim" title=${f.reason}>${f.reason}</span>` },
  ];
  return html`<div class="verdict ${check.safe ? "ok" : "bad"}"><div>
      <strong>${check.safe ? "It can be stopped" : "It should not be stopped"}</strong>
      <span class="dim">${counted(check)}</span></div></div>
    ${findings.length
      ? html`<${Table} label="Affected partitions" columns=${columns} rows=${findings} rowKey=${(f) => `${f.topic}/${f.partition}`} />
          ${check.next_page_token && html`<p class="faint small">The worst ${number(findings.length)} are shown.</p>`}`
      : html`<${Empty} title="No partition would be affected." />`}`;
}

function counted(check) {
  const parts = [
    [check.unavailable, "unavailable"],
    [check.under_min_isr, "under min ISR"],
    [check.last_replica, "with one replica left in sync"],
    [check.leader_moves, "led by another broker"],
  ];
  const counts = parts.filter(([count]) => count > 0).map(([count, what]) => `${plural(count, "partition")} ${what}`);
  return counts.join(", ") || "No partition would become unavailable or fall under min ISR.";
}

// Creation, change and deletion of topics. Each shows its effects first.
import { html, useState } from "../html.js";
import { at, change, newOperationId } from "../api.js";
import { NONE, brokers, number, plural } from "../format.js";
import { href } from "../router.js";
import { Act } from "./act.js";
import { Field, notify } from "./basics.js";
import { begun } from "./broker_acts.js";
import { Placement } from "./placement.js";
import { PlanView, Warnings } from "./plan.js";
import { Table } from "./table.js";
import { ConfigFields, setValues } from "./topic_config.js";

// Maximum number of partitions with an explicit assignment. The controller places the replicas of
// larger topics again.
const MAX_ASSIGNED = 1_000;

export function CreateTopic({ onClose, onDone }) {
  const [topic, setTopic] = useState("");
  const [partitions, setPartitions] = useState("6");
  const [factor, setFactor] = useState("3");
  const [config, setConfig] = useState({});
  const [id] = useState(newOperationId);
  const body = {
    topic,
    partitions: Number(partitions),
    replication_factor: Number(factor),
    config: setValues(config),
  };
  const send = (query, more = {}) => change("POST", "topics", { ...body, ...more }, { query });
  const form = html`<div class="fields">
      <${Field} label="Name" hint="Letters, digits, '.', '_' and '-'">
        <input name="topic" value=${topic} required autofocus autocomplete="off" spellcheck=${false} onInput=${(event) => setTopic(event.target.value)} />
      <//>
      <${Field} label="Partitions" hint="More can be added later">
        <input name="partitions" type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} />
      <//>
      <${Field} label="Replicas of each" hint="Each on a different broker">
        <input name="replication_factor" type="number" min="1" value=${factor} onInput=${(event) => setFactor(event.target.value)} />
      <//>
    </div>
    <details><summary>Configuration</summary><${ConfigFields} values=${config} onChange=${setConfig} /></details>`;
  return html`<${Act} title="Create a topic" verb="Create it" form=${form} ready=${topic !== ""} subject=${JSON.stringify(body)}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => html`<${Warnings} plan=${plan} /><${Placement} topic=${topic} assignment=${plan.assignment} />`}
    run=${(plan) => send({}, { operation_id: id, ...exactly(plan.assignment) })}
    done=${(answer) => {
      notify(`Topic ${topic} is created.${late(answer, "start its replicas")}`, { name: "Open it", target: href(["topics", topic]) });
      onDone();
    }}
    onClose=${onClose} />`;
}

function exactly(assignment) {
  return assignment.length <= MAX_ASSIGNED ? { assignment } : {};
}

/** A sentence on the brokers of an answer that have not applied the change yet. */
function late(answer, verb) {
  const behind = answer?.pending_brokers ?? [];
  if (behind.length === 1) return ` Broker ${behind[0]} has yet to ${verb}.`;
  return behind.length ? ` Brokers ${brokers(behind)} have yet to ${verb}.` : "";
}

export function ChangeConfig({ topic, onClose, onDone }) {
  const before = Object.fromEntries(topic.config.map((e) => [e.key, e.is_set ? e.value : ""]));
  const defaults = Object.fromEntries(topic.config.map((e) => [e.key, e.default_value]));
  const [values, setValuesNow] = useState(before);
  const changed = Object.keys(values).filter((key) => values[key] !== before[key]);
  const body = {
    set: setValues(Object.fromEntries(changed.map((key) => [key, values[key]]))),
    unset: changed.filter((key) => values[key] === ""),
  };
  // The revision when the dialog was opened: later changes of others are not overwritten.
  const [revision] = useState(topic.revision);
  const send = (query) => change("PATCH", at("topics", topic.topic, "config"), body, { query, revision });
  const columns = [
    { name: "Key", show: (c) => html`<code>${c.key}</code>` },
    { name: "Before", show: (c) => html`<span class="dim">${c.before || NONE}</span>` },
    { name: "After", show: (c) => html`<strong>${c.after || NONE}</strong>` },
  ];
  return html`<${Act} title=${`Change the configuration of ${topic.topic}`} verb="Change it" ready=${changed.length > 0}
    subject=${JSON.stringify(body)} form=${html`<${ConfigFields} values=${values} onChange=${setValuesNow} defaults=${defaults} />`}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => html`<${Warnings} plan=${plan} /><${Table} label="What would change" columns=${columns} rows=${plan.changes} rowKey=${(c) => c.key} empty="No changes: all keys already have these values." />`}
    run=${() => send({})}
    done=${(answer) => {
      notify(`The configuration of ${topic.topic} is changed.${late(answer, "apply it")}`);
      onDone();
    }}
    onClose=${onClose} />`;
}

export function PartitionCountAct({ topic, onClose }) {
  const [count, setCount] = useState(String(topic.partitions));
  const [revision] = useState(topic.revision);
  const target = Number(count);
  const isLess = target < topic.partitions;
  const send = (query, more) =>
    change("PUT", at("topics", topic.topic, "partition-count"), { partitions: target, ...more }, { query, revision });
  return html`<${Act} title=${`Partitions of ${topic.topic}`} verb=${isLess ? "Remove them with their data" : "Add them"} danger=${isLess}
    confirm=${isLess ? topic.topic : ""} ready=${target >= 1 && target !== topic.partitions} subject=${count}
    form=${html`<${Field} label="Partitions in all" hint=${`Now ${number(topic.partitions)}. A higher number adds partitions, and records with a key go to other partitions from then on. A lower number deletes the last partitions with their data.`}>
      <input name="partitions" type="number" min="1" autofocus value=${count} onInput=${(event) => setCount(event.target.value)} />
    <//>`}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => (isLess
      ? html`<p><strong>${plural(topic.partitions - target, "partition")}</strong>, from ${target} to ${topic.partitions - 1}, would be
          deleted with all records, on brokers ${brokers(plan.brokers)}.</p>`
      : html`<${Warnings} plan=${plan} /><${Placement} topic=${topic.topic} assignment=${plan.assignment} first=${topic.partitions} />`)}
    run=${(plan) => send({}, isLess ? { confirm: topic.topic } : exactly(plan.assignment))}
    done=${(answer) => notify(`${topic.topic} has ${plural(target, "partition")}.${late(answer, isLess ? "delete its replicas" : "start its replicas")}`)}
    onClose=${onClose} />`;
}

export function FactorAct({ topic, onClose }) {
  const [factor, setFactor] = useState(String(topic.replication_factor));
  const [id] = useState(newOperationId);
  const send = (query, more) =>
    change("PUT", at("topics", topic.topic, "replication-factor"), { replication_factor: Number(factor), ...more }, { query });
  return html`<${Act} title=${`Replicas of ${topic.topic}`} verb="Begin" ready=${Number(factor) >= 1} subject=${factor}
    form=${html`<${Field} label="Replicas of each partition" hint=${`Now ${number(topic.replication_factor)}. New replicas are copied in the background.`}>
      <input name="replication_factor" type="number" min="1" autofocus value=${factor} onInput=${(event) => setFactor(event.target.value)} />
    <//>`}
    plan=${() => send({ dry_run: true })}
    show=${({ plan }) => html`<${PlanView} plan=${plan} />`}
    reject=${({ plan }) => plan.move_count === 0 && "No moves are needed."}
    run=${({ plan }) => send({}, { operation_id: id, expected_plan: plan.digest })}
    done=${begun} onClose=${onClose} />`;
}

export function DeleteTopic({ topic, onDeleted, onClose }) {
  const [revision] = useState(topic.revision);
  const send = (query) => change("DELETE", at("topics", topic.topic), undefined, { query, revision });
  return html`<${Act} title=${`Delete ${topic.topic}`} verb="Delete it with its data" danger confirm=${topic.topic} narrow
    plan=${() => send({ dry_run: true, confirm: topic.topic })}
    show=${(plan) => html`<p><strong>${plural(plan.partitions, "partition")}</strong> with all records would be deleted, on
      brokers ${brokers(plan.brokers)}. This cannot be undone.</p>`}
    run=${() => send({ confirm: topic.topic })}
    done=${(answer) => {
      notify(`Topic ${topic.topic} is deleted.${late(answer, "delete its replicas")}`);
      onDeleted();
    }}
    onClose=${onClose} />`;
}

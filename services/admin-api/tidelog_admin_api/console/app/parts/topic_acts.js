// Changes of a topic's size: how many partitions, how many replicas of each.
import { html, useState } from "../html.js";
import { at, change, newOperationId } from "../api.js";
import { brokers, number, plural } from "../format.js";
import { href } from "../router.js";
import { Placement } from "../pages/topics.js";
import { Act } from "./act.js";
import { Field, tell } from "./basics.js";
import { PlanView } from "./plan.js";

export function PartitionCountAct({ topic, onClose }) {
  const [count, setCount] = useState(String(topic.partitions));
  const [revision] = useState(topic.revision);
  const wanted = Number(count);
  const isLess = wanted < topic.partitions;
  const send = (query, more) =>
    change("PUT", at("topics", topic.topic, "partition-count"), { partitions: wanted, ...more }, { query, revision });
  return html`<${Act} title=${`Partitions of ${topic.topic}`} verb=${isLess ? "Remove them with their data" : "Add them"} danger=${isLess}
    confirm=${isLess ? topic.topic : ""} ready=${wanted >= 1 && wanted !== topic.partitions} subject=${count}
    form=${html`<${Field} label="Partitions in all" hint=${`There are ${number(topic.partitions)}. More: records with a key go to other partitions from then on. Fewer: the last ones go, with their data.`}>
      <input name="partitions" type="number" min="1" autofocus value=${count} onInput=${(event) => setCount(event.target.value)} />
    <//>`}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => (isLess
      ? html`<p><strong>${plural(topic.partitions - wanted, "partition")}</strong>, from ${wanted} to ${topic.partitions - 1}, would be
          deleted with all records, on brokers ${brokers(plan.brokers)}.</p>`
      : html`<${Placement} topic=${topic.topic} assignment=${plan.assignment} first=${topic.partitions} />`)}
    run=${() => send({}, isLess ? { confirm: topic.topic } : {})}
    done=${() => tell(`${topic.topic} has ${plural(wanted, "partition")}.`)}
    onClose=${onClose} />`;
}

export function FactorAct({ topic, onClose }) {
  const [factor, setFactor] = useState(String(topic.replication_factor));
  const [id] = useState(newOperationId);
  const send = (query, more) =>
    change("PUT", at("topics", topic.topic, "replication-factor"), { replication_factor: Number(factor), ...more }, { query });
  return html`<${Act} title=${`Replicas of ${topic.topic}`} verb="Begin" ready=${Number(factor) >= 1} subject=${factor}
    form=${html`<${Field} label="Replicas of each partition" hint=${`There are ${number(topic.replication_factor)}. New ones are copied while all goes on.`}>
      <input name="replication_factor" type="number" min="1" autofocus value=${factor} onInput=${(event) => setFactor(event.target.value)} />
    <//>`}
    plan=${() => send({ dry_run: true })}
    show=${({ plan }) => html`<${PlanView} plan=${plan} />`}
    refuse=${({ plan }) => plan.move_count === 0 && "There is nothing to be done."}
    run=${() => send({}, { operation_id: id })}
    done=${({ operation }) => tell("It has begun.", { name: "Follow it", target: href(["moves", operation.operation_id]) })}
    onClose=${onClose} />`;
}

// The dialog that moves partitions of a topic to chosen brokers.
import { html, useState } from "../html.js";
import { all, at, change, newOperationId } from "../api.js";
import { blockedWord, cautionOf, movedUp, rotated, wrongTarget } from "../broker_rules.js";
import { brokers as listed, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { healthOf } from "../verdict.js";
import { Act } from "./act.js";
import { Empty, Field, State, Waiting } from "./basics.js";
import { BrokerChoice, useBrokers } from "./broker_choice.js";
import { begun } from "./broker_acts.js";
import { PlanView } from "./plan.js";
import { Table } from "./table.js";

const TOPICS_EVERY_MS = 15_000;
const EVERY_MS = 2_000;
// Moves of one request: MAX_MOVES_PER_REQUEST of the gateway.
const MAX_MOVES = 2_000;

/** `topic`, `partition`: those that are chosen at first; undefined: none. */
export function MovePartitions({ topic: firstTopic = "", partition: firstPartition, onClose }) {
  const [topic, setTopic] = useState(firstTopic);
  // Broker ids by chosen partition, the preferred leader first; null: the present ones.
  const [targets, setTargets] = useState(firstPartition === undefined ? {} : { [firstPartition]: null });
  const [open, setOpen] = useState(firstPartition ?? null);
  const [operationId] = useState(newOperationId);
  const topics = usePolled((signal) => all("topics", { internal: true }, signal), "topics", TOPICS_EVERY_MS);
  const partitions = usePartitions(topic);
  const brokers = useBrokers();
  const described = topics.data?.find((one) => one.topic === topic);
  const minIsr = Number(described?.config.min_insync_replicas) || 0;
  const chosen = chosenOf(targets, partitions.data ?? []);
  const wrongOf = ({ current, target }) => wrongTarget(target, { current, minIsr, brokers: brokers.data ?? [] });
  const moves = chosen.filter(({ current, target }) => String(current) !== String(target)).map(({ partition, target }) => ({ topic, partition, target }));
  const isReady = moves.length > 0 && moves.length <= MAX_MOVES && chosen.every((one) => wrongOf(one) === "");
  const send = (query, body) => change("POST", "reassignments", body, { query });
  const choose = (name) => {
    setTopic(name);
    setTargets({});
    setOpen(null);
  };
  const form = html`<${Field} label="Topic"><select name="topic" autofocus=${firstTopic === ""} value=${topic} onChange=${(event) => choose(event.target.value)}>
      <option value="">Choose…</option>
      ${(topics.data ?? []).map((one) => html`<option key=${one.topic} value=${one.topic}>${one.topic}</option>`)}
    </select><//>
    ${topic !== "" && html`<${Chooser} topic=${topic} partitions=${partitions} brokers=${brokers} chosen=${chosen} open=${open}
      onOpen=${setOpen} onTargets=${setTargets} targets=${targets} wrongOf=${wrongOf} />`}
    ${moves.length > MAX_MOVES && html`<p class="wrong" role="alert">One operation moves at most ${number(MAX_MOVES)} partitions: choose fewer.</p>`}`;
  return html`<${Act} title="Move partitions" verb="Begin to move" ready=${isReady} subject=${JSON.stringify(moves)} form=${form}
    plan=${() => send({ dry_run: true }, { moves })} show=${({ plan }) => html`<${PlanView} plan=${plan} />`}
    reject=${({ plan }) => plan.move_count === 0 && "No moves are needed."}
    run=${({ plan }) => send({}, { moves: plan.moves, operation_id: operationId })} done=${begun} onClose=${onClose} />`;
}

function usePartitions(topic) {
  return usePolled((signal) => all(at("topics", topic, "partitions"), {}, signal), topic, EVERY_MS, topic === "");
}

/** [{partition, current, target}] of the chosen partitions. */
function chosenOf(targets, partitions) {
  return partitions
    .filter(({ partition }) => partition in targets)
    .map(({ partition, replicas }) => ({ partition, current: replicas, target: targets[partition] ?? replicas }));
}

function Chooser({ topic, partitions, brokers, chosen, targets, open, onOpen, onTargets, wrongOf }) {
  if (!partitions.data) return html`<${Waiting} of=${partitions} />`;
  if (!brokers.data) return html`<${Waiting} of=${brokers} />`;
  const turn = (partition) => {
    const { [partition]: _, ...others } = targets;
    const isAdded = !(partition in targets);
    onTargets(isAdded ? { ...targets, [partition]: null } : others);
    if (isAdded) onOpen(partition);
    else if (partition === open) onOpen(null);
  };
  const now = chosen.find(({ partition }) => partition === open);
  const setTarget = (target) => onTargets({ ...targets, [open]: target });
  const useForAll = () => onTargets(Object.fromEntries(chosen.map(({ partition }, at) => [partition, rotated(now.target, at)])));
  return html`<${PartitionTable} topic=${topic} partitions=${partitions.data} chosen=${chosen} open=${open} onTurn=${turn} onEdit=${onOpen} />
    ${chosen.length === 0 && html`<p class="dim">Choose the partitions to move.</p>`}
    ${now && html`<${Target} name=${`${topic}/${open}`} move=${now} brokers=${brokers.data} wrong=${wrongOf(now)} onChange=${setTarget} />`}
    ${now && chosen.length > 1 && html`<div><button class="button" type="button" disabled=${wrongOf(now) !== ""} onClick=${useForAll}>Use these brokers for all ${number(chosen.length)} partitions</button>
      <span class="hint small faint"> Each has another one as preferred leader, in turn.</span></div>`}
    ${chosen.filter((one) => one.partition !== open && wrongOf(one)).map((one) => html`<p class="wrong small" role="alert" key=${one.partition}>${topic}/${one.partition}: ${wrongOf(one)}</p>`)}`;
}

function PartitionTable({ topic, partitions, chosen, open, onTurn, onEdit }) {
  const moveOf = (p) => chosen.find(({ partition }) => partition === p.partition);
  const columns = [
    { name: "Partition", value: (p) => p.partition, show: (p) => html`<label class="check"><input type="checkbox" name="partition" value=${p.partition}
      checked=${Boolean(moveOf(p))} disabled=${p.moving_operation !== ""} onChange=${() => onTurn(p.partition)} />${topic}/${p.partition}</label>` },
    { name: "State", width: "120px", value: (p) => healthOf(p)[1], show: (p) => { const [tone, word] = healthOf(p); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Replicas", width: "110px", show: (p) => listed(p.replicas) },
    { name: "After the move", width: "190px", show: (p) => { const move = moveOf(p); return move && html`<span class="row">${listed(move.target)}
      ${p.partition !== open && html`<button class="button compact" type="button" aria-label=${`Edit the replicas of ${topic}/${p.partition}`} onClick=${() => onEdit(p.partition)}>Edit</button>`}</span>`; } },
  ];
  return html`<div class="low-table"><${Table} label=${`Partitions of ${topic}`} columns=${columns} rows=${partitions} rowKey=${(p) => p.partition} empty="The topic has no partitions yet." /></div>`;
}

/** The new replicas of one partition in their order, and the brokers to choose from. */
function Target({ name, move: { current, target }, brokers, wrong, onChange }) {
  const turn = (id) => onChange(target.includes(id) ? target.filter((one) => one !== id) : [...target, id]);
  return html`<section class="target" aria-label=${`Replicas of ${name}`}>
    <p class="label">Replicas of ${name} after the move, the preferred leader first</p>
    ${target.length === 0 && html`<${Empty} title="No broker is chosen." />`}
    <ol class="order">${target.map((id, at) => html`<li key=${id}>
      <span>Broker ${id}</span>
      ${at === 0 && html`<span class="tag">preferred leader</span>`}
      ${!current.includes(id) && html`<span class="tag">new</span>`}
      <span class="grow"></span>
      ${at > 0 && html`<button class="button compact" type="button" aria-label=${`Move broker ${id} up`} onClick=${() => onChange(movedUp(target, at))}>↑ Up</button>`}
      <button class="button compact" type="button" aria-label=${`Leave out broker ${id}`} onClick=${() => turn(id)}>Leave out</button>
    </li>`)}</ol>
    ${leaving(current, target).length > 0 && html`<p class="small dim">Leaving: ${leaving(current, target).map((id) => `broker ${id}`).join(", ")}. ${plural(target.length, "replica")} after the move, ${number(current.length)} now.</p>`}
    ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
    ${!wrong && String(current) === String(target) && html`<p class="small dim" role="status">These are its present replicas: choose others, or another order.</p>`}
    <${BrokerChoice} legend="Brokers" brokers=${brokers} chosen=${target} onChange=${turn} blockedOf=${(broker) => blockedWord(broker, current)} noteOf=${cautionOf} />
  </section>`;
}

function leaving(current, target) {
  return current.filter((id) => !target.includes(id));
}

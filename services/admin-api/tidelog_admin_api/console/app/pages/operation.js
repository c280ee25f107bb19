// One operation: its progress and its moves; cancellation and reversal.
import { html, useMemo, useState } from "../html.js";
import { all, at, change, get, newOperationId } from "../api.js";
import { NONE, ago, brokers, bytes, clock, duration, number, plural, sentence } from "../format.js";
import { usePolled } from "../live.js";
import { href } from "../router.js";
import { Act } from "../parts/act.js";
import { begun } from "../parts/broker_acts.js";
import { Age, Facts, Live, PageHead, Panel, PartitionLink, Progress, Stale, State, Waiting, notify } from "../parts/basics.js";
import { PlanView, Warnings } from "../parts/plan.js";
import { Table } from "../parts/table.js";
import { toneOfOperation } from "../verdict.js";

const EVERY_MS = 1_000;
const MOVES_EVERY_MS = 2_000;
const TONES = { waiting: "", active: "note", done: "ok", dropped: "warn" };
// Active moves come first.
const ORDER = ["active", "waiting", "dropped", "done"];

export function Operation({ id }) {
  const path = at("operations", id);
  const [act, setAct] = useState("");
  const known = usePolled((signal) => get(path, {}, signal), path, EVERY_MS);
  const { data, refresh } = known;
  const close = () => {
    setAct("");
    refresh();
  };
  const hasEnded = data?.ended_at_ms > 0;
  return html`<${PageHead} title=${data ? sentence(data.kind) : "Operation"} crumbs=${[["Moves", href(["moves"])], [id, href(["moves", id])]]}
      beside=${html`${data && html`<${State} tone=${toneOfOperation(data.state)}>${data.state}<//>`}<${Live} of=${known} still=${hasEnded} />`}>
      ${data && !hasEnded && html`<button class="button danger" data-first-act onClick=${() => setAct("cancel")}>Cancel…</button>`}
      ${hasEnded && data.progress.moves_done > 0 && html`<button class="button" data-first-act onClick=${() => setAct("reverse")}>Reverse…</button>`}
    <//>
    ${data ? html`<${Shown} operation=${data} known=${known} />` : html`<${Waiting} of=${known} />`}
    ${data && act === "cancel" && html`<${Cancel} operation=${data} onClose=${close} />`}
    ${data && act === "reverse" && html`<${Reverse} operation=${data} onClose=${close} />`}`;
}

function Shown({ operation, known }) {
  const { progress } = operation;
  const hasEnded = operation.ended_at_ms > 0;
  const end = hasEnded ? `ended ${ago(operation.ended_at_ms)}` : progress.estimated_end_ms ? `done in about ${duration(progress.estimated_end_ms - Date.now())}` : "no estimate of the end yet";
  return html`<div class="stack">
    <${Stale} of=${known} />
    <${Panel}><div class="progress">
      <div class="row"><strong>${number(progress.moves_done)} of ${plural(progress.moves, "move")} done</strong><span class="grow"></span><span class="dim">${end}</span></div>
      <${Progress} label="Moves done" part=${progress.moves_done} whole=${progress.moves} ended=${hasEnded} />
      <div class="steps"><span>${number(progress.moves_active)} active</span>
        <span>${number(progress.replicas_added)} of ${plural(progress.replicas_to_add, "replica")} copied</span>
        ${progress.bytes_to_copy > 0 && html`<span>${bytes(progress.bytes_copied)} of ${bytes(progress.bytes_to_copy)}</span>`}
        ${progress.bytes_per_second > 0 && html`<span>${bytes(progress.bytes_per_second)} a second</span>`}
        ${progress.moves_dropped > 0 && html`<span>${number(progress.moves_dropped)} dropped</span>`}</div>
      ${operation.reason && html`<p class="dim">${operation.reason}</p>`}
    </div><//>
    <${Panel}><${Facts} of=${[
      ["Requested by", operation.requested_by || NONE],
      ["Requested from", operation.requested_from || NONE],
      ["Started", clock(operation.requested_at_ms)],
      ["Ended", hasEnded ? clock(operation.ended_at_ms) : "not yet"],
      ["Duration", duration((operation.ended_at_ms || Date.now()) - operation.requested_at_ms)],
      ["Trace", operation.trace_id ? html`<code class="small">${operation.trace_id}</code>` : NONE],
    ]} /><//>
    <${MovesOf} id=${operation.operation_id} hasEnded=${hasEnded} />
  </div>`;
}

function MovesOf({ id, hasEnded }) {
  const path = at("operations", id, "moves");
  const known = usePolled((signal) => all(path, {}, signal), `${path}|${hasEnded}`, hasEnded ? 15_000 : MOVES_EVERY_MS);
  const { data } = known;
  const moves = useMemo(() => [...(data ?? [])].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)), [data]);
  const columns = [
    { name: "Partition", value: ({ move }) => `${move.topic}/${move.partition}`, show: ({ move }) => html`<${PartitionLink} ...${move} />` },
    { name: "State", width: "120px", value: (one) => one.state, show: (one) => html`<${State} tone=${TONES[one.state]}>${one.state}<//>` },
    { name: "From brokers", width: "17%", show: ({ move }) => brokers(move.original) },
    { name: "To brokers", width: "17%", show: ({ move }) => brokers(move.target) },
    { name: "Copied", width: "15%", num: true, value: (one) => one.bytes_copied ?? -1, show: (one) => (one.bytes_to_copy ? `${bytes(one.bytes_copied)} of ${bytes(one.bytes_to_copy)}` : "") },
    { name: "Waits for", width: "20%", show: (one) => (one.waits_for.length ? `broker ${brokers(one.waits_for)} to be in sync` : "") },
  ];
  return html`<${Panel} title="Moves" flush beside=${html`<${Age} of=${known} />`}>
    ${data ? html`<${Table} label="Moves" columns=${columns} rows=${moves} rowKey=${({ move }) => `${move.topic}/${move.partition}`} empty="The operation has no moves." />` : html`<${Waiting} of=${known} />`}
  <//>`;
}

function Cancel({ operation, onClose }) {
  // The revision changes with the state of the operation, and not with its progress.
  const [revision] = useState(operation.revision);
  const send = (query) => change("POST", at("operations", operation.operation_id, "cancel"), {}, { query, revision });
  return html`<${Act} title="Cancel this operation" verb="Cancel and revert" danger plan=${() => send({ dry_run: true })}
    show=${({ plan }) => html`<p>Waiting moves would be dropped, and completed moves would stay. <strong>${plural(plan?.move_count ?? 0, "active move")}</strong> would be reverted:</p>
      ${plan && (plan.move_count > 0 ? html`<${PlanView} plan=${plan} />` : html`<${Warnings} plan=${plan} />`)}`}
    run=${() => send({})} done=${() => notify("The operation is being cancelled.")} onClose=${onClose} />`;
}

function Reverse({ operation, onClose }) {
  const [operationId] = useState(newOperationId);
  const send = (query, more) => change("POST", at("operations", operation.operation_id, "reverse"), more, { query });
  return html`<${Act} title="Reverse this operation" verb="Begin the reversal" plan=${() => send({ dry_run: true }, {})}
    show=${({ plan }) => html`<${PlanView} plan=${plan} />`} reject=${({ plan }) => plan.move_count === 0 && "There are no moves to reverse."}
    run=${({ plan }) => send({}, { operation_id: operationId, expected_plan: plan.digest })} done=${begun} onClose=${onClose} />`;
}

// Operations: running and ended ones, their throttle, and explicit moves.
import { html, useState } from "../html.js";
import { all, change, get } from "../api.js";
import { bytes, clock, duration, number, sentence } from "../format.js";
import { usePolled } from "../live.js";
import { href } from "../router.js";
import { Act } from "../parts/act.js";
import { BalanceAct } from "../parts/broker_acts.js";
import { Age, Field, Live, PageHead, Panel, Progress, Stale, State, Waiting, notify } from "../parts/basics.js";
import { MovePartitions } from "../parts/move_partitions.js";
import { Table } from "../parts/table.js";
import { toneOfOperation } from "../verdict.js";

const EVERY_MS = 1_000;
const UNITS = [["KiB", 1_024], ["MiB", 1_048_576], ["GiB", 1_073_741_824]];

export function Moves() {
  const [act, setAct] = useState("");
  const known = usePolled((signal) => all("operations", {}, signal), "operations", EVERY_MS);
  const { data, refresh } = known;
  const close = () => {
    setAct("");
    refresh();
  };
  return html`<${PageHead} title="Moves" beside=${html`<${Live} of=${known} />`}>
      <button class="button" onClick=${() => setAct("rebalance")}>Rebalance…</button>
      <button class="button primary" data-first-act onClick=${() => setAct("move")}>Move partitions…</button>
    <//>
    <div class="stack">
      <${Stale} of=${known} />
      <${Throttle} />
      ${data ? html`<${Listed} operations=${data} />` : html`<${Waiting} of=${known} />`}
    </div>
    ${act === "rebalance" && html`<${BalanceAct} kind="rebalance" onClose=${close} />`}
    ${act === "move" && html`<${MovePartitions} onClose=${close} />`}`;
}

function Listed({ operations }) {
  const running = operations.filter((one) => one.ended_at_ms === 0);
  const ended = operations.filter((one) => one.ended_at_ms > 0);
  return html`<${Panel} title="Running" flush beside=${html`<span class="count">${running.length}</span>`}>
      <${OperationTable} operations=${running} empty="No operation is running." />
    <//>
    <${Panel} title="Ended" flush beside=${html`<span class="faint small">the latest</span>`}>
      <${OperationTable} operations=${ended} empty="No operation has ended yet." />
    <//>`;
}

function OperationTable({ operations, empty }) {
  const columns = [
    { name: "Operation", value: (o) => o.operation_id, show: (o) => html`<a href=${href(["moves", o.operation_id])} title=${o.operation_id}>${o.operation_id}</a>` },
    { name: "Kind", width: "170px", value: (o) => o.kind, show: (o) => sentence(o.kind) },
    { name: "State", width: "120px", value: (o) => o.state, show: (o) => html`<${State} tone=${toneOfOperation(o.state)}>${o.state}<//>` },
    { name: "Moves", width: "26%", value: (o) => o.progress.moves_done, show: (o) => html`<${Moved} operation=${o} />` },
    { name: "Requested by", width: "120px", value: (o) => o.requested_by, show: (o) => html`<span title=${`from ${o.requested_from}`}>${o.requested_by || o.requested_from}</span>` },
    { name: "Started", width: "130px", value: (o) => o.requested_at_ms, show: (o) => clock(o.requested_at_ms) },
    { name: "Duration", width: "110px", value: (o) => tookMs(o), show: (o) => duration(tookMs(o)) },
  ];
  return html`<${Table} label="Operations" columns=${columns} rows=${operations} rowKey=${(o) => o.operation_id} empty=${empty} />`;
}

function tookMs(operation) {
  return (operation.ended_at_ms || Date.now()) - operation.requested_at_ms;
}

function Moved({ operation: { operation_id: id, progress, ended_at_ms: ended } }) {
  return html`<div class="moved">
    <${Progress} label=${`Moves of ${id}`} part=${progress.moves_done} whole=${progress.moves} ended=${ended > 0} />
    <span class="small dim nowrap">${number(progress.moves_done)} of ${number(progress.moves)}</span>
  </div>`;
}

function Throttle() {
  const known = usePolled((signal) => get("throttle", {}, signal), "throttle", 3_000);
  const { data, error, refresh } = known;
  const [editing, setEditing] = useState(false);
  const bound = data?.bytes_per_second;
  return html`<section class="panel" aria-label="Throttle"><div class="toolbar plain">
      <span><strong>Throttle</strong>: ${data ? (bound == null ? "no limit" : `each broker sends and receives at most ${bytes(bound)} a second for moves`) : error ? error.message : "…"}</span>
      ${data && html`<${Age} of=${known} />`}
      <span class="grow"></span>
      <button class="button" disabled=${!data} onClick=${() => setEditing(true)}>Change…</button>
    </div></section>
    ${editing && html`<${ThrottleAct} throttle=${data} onClose=${() => { setEditing(false); refresh(); }} />`}`;
}

function ThrottleAct({ throttle, onClose }) {
  const [amount, setAmount] = useState(throttle.bytes_per_second == null ? "" : String(throttle.bytes_per_second / 1_048_576));
  const [unit, setUnit] = useState("MiB");
  const factor = UNITS.find(([name]) => name === unit)[1];
  const bound = amount === "" ? null : Math.round(Number(amount) * factor);
  const [revision] = useState(throttle.revision);
  const send = (query) => change("PUT", "throttle", { bytes_per_second: bound }, { query, revision });
  return html`<${Act} title="Throttle of moves" verb="Set it" narrow subject=${String(bound)}
    form=${html`<${Field} label="Bytes a second, of each broker, sent and received" hint="Empty: no limit. It applies at once, also to active moves. In-sync replicas are never slowed.">
      <span class="row"><input name="amount" type="number" min="0" step="any" autofocus value=${amount} onInput=${(event) => setAmount(event.target.value)} />
      <select name="unit" aria-label="Unit" value=${unit} onChange=${(event) => setUnit(event.target.value)}>${UNITS.map(([name]) => html`<option>${name}</option>`)}</select></span>
    <//>`}
    plan=${() => send({ dry_run: true })}
    show=${() => html`<p>${throttle.bytes_per_second == null ? "No limit" : `${bytes(throttle.bytes_per_second)} a second`} →
      ${" "}<strong>${bound == null ? "no limit" : `${bytes(bound)} a second`}</strong></p>`}
    run=${() => send({})} done=${() => notify("The throttle is set.")} onClose=${onClose} />`;
}

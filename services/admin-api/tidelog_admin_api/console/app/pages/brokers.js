// The brokers: their states and load; maintenance, restart check, addition and removal.
import { html, useState } from "../html.js";
import { all } from "../api.js";
import { NONE, ago, bytes, number, plural } from "../format.js";
import { useHistory } from "../history.js";
import { usePolled } from "../live.js";
import { BalanceAct, MaintenanceAct, PreferredAct, RestartCheck } from "../parts/broker_acts.js";
import { useProcesses } from "../parts/broker_choice.js";
import { Live, PageHead, Panel, Stale, State, Waiting } from "../parts/basics.js";
import { BYTES, BYTE_RATE, COUNT, LINE_COLOURS } from "../parts/charts.js";
import { HistoryCharts, MAX_LINES } from "../parts/history_charts.js";
import { Loads } from "../parts/loads.js";
import { PartitionMap } from "../parts/partition_map.js";
import { ReleasesPanel } from "../parts/releases.js";
import { ScrubAct, ScrubPanel } from "../parts/scrub.js";
import { Table } from "../parts/table.js";
import { isMissed, statusOf } from "../verdict.js";

const EVERY_MS = 1_000;
const CHARACTER_PX = 8;
// Of "gone 12 min ago" in its smaller type.
const GONE_CHARACTERS = 12;
const CELL_PADDING_PX = 24;
const LEAST_ADDRESS_PX = 110;
const MOST_ADDRESS_PX = 320;

export function Brokers() {
  const [act, setAct] = useState(null);
  const known = usePolled((signal) => all("brokers", {}, signal), "brokers", EVERY_MS);
  const { data, refresh } = known;
  const processes = useProcesses(data);
  const close = () => {
    setAct(null);
    refresh();
  };
  const waiting = (data ?? []).filter((broker) => broker.status === "running" && broker.not_added);
  return html`<${PageHead} title="Brokers" beside=${html`<${Live} of=${known} />`}>
      <button class="button" onClick=${() => setAct({ kind: "preferred" })}>Preferred leaders…</button>
      <button class="button" onClick=${() => setAct({ kind: "rebalance" })}>Rebalance…</button>
      <button class="button primary" data-first-act disabled=${!data} onClick=${() => setAct({ kind: "add", chosen: waiting.map(idOf) })}>Add brokers…</button>
    <//>
    ${data
      ? html`<div class="stack">
          <${Stale} of=${known} />
          <section class="panel" aria-label="Brokers"><${BrokerTable} brokers=${data} processes=${processes} onAct=${setAct} /></section>
          <${OverTime} brokers=${data} />
          <${ScrubPanel} onAct=${() => setAct({ kind: "scrub" })} />
          <div class="split">
            <${Panel} title="Leaders per broker"><${Loads} brokers=${data} /><//>
            <${Racks} brokers=${data} />
          </div>
          <${Panel} title="Partitions by broker"><${PartitionMap} brokers=${data} /><//>
          <${ReleasesPanel} />
        </div>`
      : html`<${Waiting} of=${known} />`}
    ${act && html`<${ActOf} act=${act} brokers=${data ?? []} onClose=${close} />`}`;
}

function idOf(broker) {
  return broker.broker_id;
}

function ActOf({ act: { kind, broker, chosen }, brokers, onClose }) {
  if (kind === "check") return html`<${RestartCheck} broker=${broker} onClose=${onClose} />`;
  if (kind === "maintenance") return html`<${MaintenanceAct} broker=${broker} onClose=${onClose} />`;
  if (kind === "scrub") return html`<${ScrubAct} brokers=${brokers} onClose=${onClose} />`;
  if (kind === "preferred") return html`<${PreferredAct} onClose=${onClose} />`;
  return html`<${BalanceAct} kind=${kind} chosen=${chosen} brokers=${brokers} onClose=${onClose} />`;
}

const FIGURES = [
  ["Data in logs", BYTES, "log_bytes"],
  ["Appended, copies included", BYTE_RATE, "bytes_per_second"],
  ["Disk free", BYTES, "disk_free_bytes"],
  ["Leaders", COUNT, "leaders"],
];

function OverTime({ brokers }) {
  const holding = brokers.filter((broker) => broker.replicas > 0 || broker.status !== "gone").map(idOf);
  const ids = holding.slice(0, MAX_LINES);
  const history = useHistory({ broker: ids }, ids.length === 0);
  const charts = FIGURES.map(([title, unit, of]) => ({
    title,
    unit,
    lines: ids.map((broker, n) => ({ name: `Broker ${broker}`, of, broker, colour: LINE_COLOURS[n] })),
  }));
  return html`<${HistoryCharts} of=${history} charts=${charts}
    beside=${holding.length > ids.length && html`<span class="faint small">the first ${MAX_LINES} of ${plural(holding.length, "broker")}</span>`} />`;
}

function BrokerTable({ brokers, processes, onAct }) {
  const isMoving = brokers.some((b) => b.moves_in + b.moves_out > 0);
  const moves = { name: "Moves", width: "98px", num: true, value: (b) => b.moves_in + b.moves_out, show: (b) => html`<span title="Active moves that add replicas to this broker, and that take replicas off it">${number(b.moves_in)} in, ${number(b.moves_out)} out</span>` };
  const rack = { name: "Rack", width: "70px", value: (b) => b.rack, show: (b) => b.rack || NONE };
  const columns = [
    { name: "Broker", width: "80px", value: (b) => b.broker_id },
    { name: "State", width: "128px", value: (b) => statusOf(b)[1], show: (b) => { const [tone, word] = statusOf(b); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Address", width: addressWidth(brokers), value: (b) => b.address, show: (b) => html`<span title=${b.address}>${b.address || NONE}</span>${b.gone_at_ms > 0 && html` <span class="faint small">gone ${ago(b.gone_at_ms)}</span>`}` },
    ...(brokers.some((b) => b.rack) ? [rack] : []),
    { name: "Replicas", width: "78px", num: true, value: (b) => b.replicas, show: (b) => number(b.replicas) },
    { name: "Leaders", width: "94px", num: true, value: (b) => b.leaders, show: (b) => html`<span title="Partitions that it leads, and those whose preferred leader it is">${number(b.leaders)} of ${number(b.preferred_leaders)}</span>` },
    ...(isMoving ? [moves] : []),
    { name: "Out of sync", width: "96px", num: true, value: (b) => b.out_of_sync, show: (b) => number(b.out_of_sync) },
    { name: "Disk free", width: "84px", num: true, value: (b) => processes[b.broker_id]?.disk_free_bytes ?? -1, show: (b) => bytes(processes[b.broker_id]?.disk_free_bytes) },
    { name: "Actions", width: "304px", show: (b) => html`<${Acts} broker=${b} onAct=${onAct} />` },
  ];
  return html`<${Table} label="Brokers" columns=${columns} rows=${brokers} rowKey=${(b) => b.broker_id} sortedBy="Broker" empty="No broker is known." />`;
}

/** Addresses are in one piece, except very long ones, which their titles show. */
function addressWidth(brokers) {
  const longest = Math.max(...brokers.map((broker) => broker.address.length + (broker.gone_at_ms > 0 ? GONE_CHARACTERS : 0)), 0);
  return `${Math.min(Math.max(longest * CHARACTER_PX + CELL_PADDING_PX, LEAST_ADDRESS_PX), MOST_ADDRESS_PX)}px`;
}

function Acts({ broker, onAct }) {
  const act = (kind) => () => onAct({ kind, broker });
  const name = `broker ${broker.broker_id}`;
  const isThere = broker.status !== "gone";
  return html`<div class="row" style=${{ flexWrap: "nowrap" }}>
    ${isThere && html`<button class="button compact" aria-label=${`Restart check of ${name}`} onClick=${act("check")}>Check…</button>
      <button class="button compact" aria-label=${`${broker.maintenance ? "End maintenance of" : "Maintenance of"} ${name}`} onClick=${act("maintenance")}>
        ${broker.maintenance ? "End maint…" : "Maintenance…"}</button>`}
    ${(broker.replicas > 0 || !broker.removed) && html`<button class="button compact danger" aria-label=${`Remove ${name}`} onClick=${() => onAct({ kind: "remove", chosen: [idOf(broker)] })}>Remove…</button>`}
  </div>`;
}

function Racks({ brokers }) {
  const racks = new Map();
  for (const broker of brokers.filter((one) => one.status !== "gone" || isMissed(one))) {
    const rack = broker.rack || "no rack";
    racks.set(rack, [...(racks.get(rack) ?? []), broker]);
  }
  const rows = [...racks].map(([rack, members]) => ({ rack, members }));
  const sum = (members, of) => members.reduce((total, broker) => total + broker[of], 0);
  const columns = [
    { name: "Rack", value: (row) => row.rack },
    { name: "Brokers", show: (row) => row.members.map(idOf).join(", ") },
    { name: "Replicas", width: "90px", num: true, value: (row) => sum(row.members, "replicas"), show: (row) => number(sum(row.members, "replicas")) },
    { name: "Leaders", width: "90px", num: true, value: (row) => sum(row.members, "leaders"), show: (row) => number(sum(row.members, "leaders")) },
  ];
  return html`<${Panel} title="Racks" flush beside=${html`<span class="faint small">${plural(rows.length, "rack")}</span>`}>
    <${Table} label="Racks" columns=${columns} rows=${rows} rowKey=${(row) => row.rack} sortedBy="Rack" />
  <//>`;
}

// The health of the cluster: verdict, findings, and load of brokers.
import { html, useState } from "../html.js";
import { href } from "../router.js";
import { NONE, clock, number, plural, sentence } from "../format.js";
import { get } from "../api.js";
import { useHistory } from "../history.js";
import { usePolled } from "../live.js";
import { overview } from "../overview_store.js";
import { useStore } from "../store.js";
import { Figure, Live, PageHead, Panel, PartitionLink, Progress, Stale, State, Waiting } from "../parts/basics.js";
import { BYTE_RATE, COUNT, PER_SECOND } from "../parts/charts.js";
import { FindingsPanel } from "../parts/findings.js";
import { GatewaysPanel } from "../parts/gateways.js";
import { HistoryCharts } from "../parts/history_charts.js";
import { Icon } from "../parts/icons.js";
import { Loads } from "../parts/loads.js";
import { PartitionMap } from "../parts/partition_map.js";
import { Table } from "../parts/table.js";
import { isLed, isMissed, verdict } from "../verdict.js";

const FIRST_UNWELL = 6;
const EXPLAIN_EVERY_MS = 3_000;
// Above this age a part of the overview is marked as old.
const STALE_MS = 6_000;

export function Overview() {
  const known = useStore(overview);
  return html`<${PageHead} title="Overview" beside=${html`<${Live} of=${known} />`} />
    <div class="stack">
      <${Stale} of=${known} />
      ${known.data ? html`<${Standing} data=${known.data} />` : html`<${Waiting} of=${known} />`}
    </div>`;
}

function Standing({ data }) {
  return html`
    <${Verdict} data=${data} />
    <${StaleParts} parts=${data.parts} />
    <${Figures} data=${data} />
    ${data.findings.length > 0 && html`<${Wrong} findings=${data.findings} />`}
    ${data.operations.length > 0 && html`<${Running} operations=${data.operations} />`}
    <${OverTime} />
    <${Panel} title="Leaders per broker"><${Loads} brokers=${data.brokers} /><//>
    ${data.unwell.length > 0 && html`<${Unwell} data=${data} />`}
    <${Panel} title="Partitions by broker"><${PartitionMap} brokers=${data.brokers} /><//>
    <${GatewaysPanel} />`;
}

function Verdict({ data }) {
  const { tone, long } = verdict(data);
  const running = data.brokers.filter((broker) => broker.status === "running").length;
  return html`<div class="verdict ${tone}" role="status">
    <${Icon} name=${tone === "ok" ? "check" : "alert"} />
    <div>
      <strong>${sentence(long)}</strong>
      <span class="dim">${plural(running, "broker")} running, ${plural(data.counts.partitions, "partition")} in
      ${" "}${plural(data.counts.topics, "topic")}</span>
    </div>
  </div>`;
}

/** Parts of the overview that could not be refreshed recently. */
function StaleParts({ parts }) {
  const old = Object.entries(parts).filter(([, part]) => part.problem && Date.now() - part.as_of_ms > STALE_MS);
  if (!old.length) return null;
  return html`<div class="warned" role="status">${old.map(([name, part]) => html`<p key=${name}>
    <strong>${sentence(name)}</strong>: ${part.as_of_ms ? `as of ${clock(part.as_of_ms)}` : "not known yet"}; ${part.problem}
  </p>`)}</div>`;
}

function Figures({ data }) {
  const { counts } = data;
  const gone = data.brokers.filter(isMissed).length;
  const tone = (count, worst) => (count > 0 ? worst : "");
  const unwell = href(["topics"], { unwell: "1" });
  return html`<div class="figures">
    <${Figure} name="Without a leader" value=${number(counts.without_leader)} tone=${tone(counts.without_leader, "bad")}
      beside="no reads, no writes" target=${unwell} />
    <${Figure} name="Under min ISR" value=${number(counts.below_min_isr)} tone=${tone(counts.below_min_isr, "bad")}
      beside="acks=all is rejected" target=${unwell} />
    <${Figure} name="Out of sync" value=${number(counts.under_replicated)} tone=${tone(counts.under_replicated, "warn")}
      beside="fewer in-sync replicas than assigned" target=${unwell} />
    <${Figure} name="Brokers gone" value=${number(gone)} tone=${tone(gone, "bad")}
      beside=${`of ${number(data.brokers.length)}`} target=${href(["brokers"])} />
    <${Figure} name="Moving" value=${number(counts.moving)}
      beside=${data.operations.length ? plural(data.operations.length, "operation") : "no operation is running"} target=${href(["moves"])} />
  </div>`;
}

/** The overview has findings without evidence, so that the complete ones are requested, too. */
function Wrong({ findings }) {
  const { data, error, late } = usePolled((signal) => get("explain", {}, signal), "explain", EXPLAIN_EVERY_MS);
  const shown = data?.findings.length && !error && !late ? data.findings : findings;
  return html`<${FindingsPanel} findings=${shown} />`;
}

function Running({ operations }) {
  return html`<${Panel} title="Running operations">
    <div class="stack">${operations.map((one) => html`<div class="progress" key=${one.operation_id}>
      <div class="row"><a href=${href(["moves", one.operation_id])}>${sentence(one.kind)}</a>
        <span class="faint small">${one.operation_id}</span><span class="grow"></span>
        <span class="small dim">${number(one.moves_done)} of ${plural(one.moves, "move")}
          ${one.estimated_end_ms ? `, about until ${clock(one.estimated_end_ms)}` : ""}</span></div>
      <${Progress} label=${`Moves of ${one.operation_id}`} part=${one.moves_done} whole=${one.moves} />
    </div>`)}</div>
  <//>`;
}

function Unwell({ data }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? data.unwell : data.unwell.slice(0, FIRST_UNWELL);
  const columns = [
    { name: "Partition", value: (p) => `${p.topic}/${p.partition}`, show: (p) => html`<${PartitionLink} ...${p} />` },
    { name: "State", width: "180px", value: (p) => p.health, show: (p) => html`<${State} tone=${!isLed(p) || p.isr.length < p.min_isr ? "bad" : "warn"}>${p.health}<//>` },
    { name: "Leader", width: "90px", num: true, show: (p) => number(p.leader) },
    { name: "In sync", width: "150px", show: (p) => p.isr.join(", ") || NONE },
    { name: "Replicas", width: "150px", show: (p) => p.replicas.join(", ") },
  ];
  const total = Math.max(data.unwell.length, data.counts.under_replicated, data.counts.without_leader);
  return html`<${Panel} title="Unhealthy partitions" flush beside=${html`<span class="count warn">${number(total)}</span>`}>
    <${Table} label="Unhealthy partitions" columns=${columns} rows=${shown} rowKey=${(p) => `${p.topic}/${p.partition}`} />
    ${data.unwell.length > shown.length && html`<p class="toolbar plain"><button class="button" onClick=${() => setWhole(true)}>Show ${data.unwell.length - shown.length} more</button></p>`}
    ${isWhole && total > shown.length && html`<p class="toolbar plain faint small">The first ${shown.length} are shown.</p>`}
  <//>`;
}

const CHARTS = [
  { title: "Records written", unit: PER_SECOND, lines: [{ name: "All topics", of: "records_per_second", colour: "chart-1" }] },
  { title: "Bytes written", unit: BYTE_RATE, lines: [{ name: "All topics", of: "bytes_per_second", colour: "chart-1" }] },
  {
    title: "Partitions out of sync",
    unit: COUNT,
    lines: [
      { name: "Out of sync", of: "under_replicated", colour: "warn-fill" },
      { name: "Without a leader", of: "without_leader", colour: "bad" },
    ],
  },
  { title: "Highest lag of a follower, in records", unit: COUNT, lines: [{ name: "Highest", of: "max_lag_records", colour: "chart-1" }] },
];

function OverTime() {
  return html`<${HistoryCharts} of=${useHistory({})} charts=${CHARTS} />`;
}

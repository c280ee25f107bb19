// One topic: its partitions, its configuration, and their changes.
import { html, useState } from "../html.js";
import { all, at, get } from "../api.js";
import { NONE, brokers, bytes, number, plural } from "../format.js";
import { useHistory } from "../history.js";
import { usePolled } from "../live.js";
import { go, href, replaceQuery } from "../router.js";
import { Age, Facts, Live, PageHead, Panel, Stale, State, Unprotected, Waiting } from "../parts/basics.js";
import { BYTES, BYTE_RATE, COUNT, PER_SECOND } from "../parts/charts.js";
import { HistoryCharts } from "../parts/history_charts.js";
import { ProduceAct } from "../parts/produce.js";
import { ChangeConfig, DeleteTopic, FactorAct, PartitionCountAct } from "../parts/topic_acts.js";
import { figuresOf } from "../topic_figures.js";
import { Table } from "../parts/table.js";
import { healthOf, isLed, topicState } from "../verdict.js";

const EVERY_MS = 2_000;
const TABS = [["", "Partitions"], ["config", "Configuration"]];

export function Topic({ topic, query }) {
  const tab = query.get("tab") ?? "";
  const [act, setAct] = useState("");
  // From then on the topic is not polled, since it may be deleted at any moment.
  const isBeingDeleted = act === "delete" || act === "deleted";
  const known = usePolled((signal) => get(at("topics", topic), {}, signal), topic, EVERY_MS, isBeingDeleted);
  const { data, refresh } = known;
  const close = () => {
    setAct((now) => (now === "deleted" ? now : ""));
    refresh();
  };
  const leave = () => {
    setAct("deleted");
    go(["topics"]);
  };
  const [tone, word] = data ? topicState(data) : ["", ""];

  return html`<${PageHead} title=${topic} crumbs=${[["Topics", href(["topics"])]]}
      beside=${html`${data && html`<${State} tone=${tone}>${word}<//>`}<${Live} of=${known} />`}>
      <a class="button" href=${href(["records"], { topic })}>Show records</a>
      <a class="button" href=${href(["records"], { topic, tab: "search" })}>Search records</a>
      ${data && !data.internal && html`<button class="button" data-first-act=${tab === "" || undefined} onClick=${() => setAct("produce")}>Produce…</button>`}
      ${data && html`
        <button class="button" onClick=${() => setAct("count")}>Partitions…</button>
        <button class="button" onClick=${() => setAct("factor")}>Replicas…</button>
        <button class="button danger" onClick=${() => setAct("delete")}>Delete…</button>`}
    <//>
    ${data
      ? html`<div class="stack">
          <${Stale} of=${known} />
          <${Panel}><${Facts} of=${[
            ["Partitions", number(data.partitions)],
            ["Replicas of each", html`${number(data.replication_factor)}${data.replication_factor === 1 && html` <${Unprotected} />`}`],
            ["Min ISR", valueOf(data, "min_insync_replicas") || "min(2, replicas)"],
            ["Durability", valueOf(data, "durability")],
            ...figuresOf(data.figures).map(({ name, text }) => [name, text]),
            ["Topic id", html`<code>${data.topic_id}</code>`],
          ]} /><//>
          <nav class="tabs" aria-label="Parts of this topic">${TABS.map(([name, words]) => html`<a key=${name}
            href=${href(["topics", topic], { tab: name })} aria-current=${tab === name ? "true" : undefined}>${words}</a>`)}</nav>
          ${tab === "config"
            ? html`<${Config} topic=${data} onChanged=${refresh} />`
            : html`<${OverTime} topic=${topic} paused=${isBeingDeleted} />
              <${Partitions} topic=${topic} query=${query} paused=${isBeingDeleted} />`}
        </div>`
      : html`<${Waiting} of=${known} />`}
    ${data && act === "produce" && html`<${ProduceAct} topic=${topic} onClose=${close} />`}
    ${data && act === "delete" && html`<${DeleteTopic} topic=${data} onDeleted=${leave} onClose=${close} />`}
    ${data && act === "count" && html`<${PartitionCountAct} topic=${data} onClose=${close} />`}
    ${data && act === "factor" && html`<${FactorAct} topic=${data} onClose=${close} />`}`;
}

const CHARTS = [
  { title: "Records written", unit: PER_SECOND, lines: [{ name: "Records", of: "records_per_second", colour: "chart-1" }] },
  { title: "Bytes written", unit: BYTE_RATE, lines: [{ name: "Bytes", of: "bytes_per_second", colour: "chart-1" }] },
  {
    title: "Size",
    unit: BYTES,
    lines: [
      { name: "All replicas", of: "total_bytes", colour: "chart-2" },
      { name: "Leaders", of: "leader_bytes", colour: "chart-1" },
    ],
  },
  { title: "Highest lag of a follower, in records", unit: COUNT, lines: [{ name: "Highest", of: "max_lag_records", colour: "chart-1" }] },
];

function OverTime({ topic, paused }) {
  return html`<${HistoryCharts} of=${useHistory({ topic }, paused)} charts=${CHARTS} />`;
}

function valueOf(topic, key) {
  return topic.config.find((entry) => entry.key === key)?.value ?? "";
}

function Partitions({ topic, query, paused }) {
  const unwell = query.get("unwell") === "1";
  const filters = { logs: true, unwell: unwell || undefined };
  const known = usePolled((signal) => all(at("topics", topic, "partitions"), filters, signal), `${topic}|${unwell}`, EVERY_MS, paused);
  const { data } = known;
  const columns = [
    { name: "Partition", value: (p) => p.partition, show: (p) => html`<a href=${href(["topics", topic, String(p.partition)])}>${p.partition}</a>` },
    { name: "State", width: "190px", value: (p) => healthOf(p)[1], show: (p) => { const [tone, word] = healthOf(p); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Leader", width: "84px", num: true, value: (p) => p.leader ?? -1, show: (p) => html`${number(p.leader)}${isLed(p) && p.leader !== p.replicas[0] && html` <span class="faint" title=${`Broker ${p.replicas[0]} is preferred`}>*</span>`}` },
    { name: "In sync", width: "110px", value: (p) => p.isr.length, show: (p) => brokers(p.isr) },
    { name: "Replicas", width: "110px", show: (p) => brokers(p.replicas) },
    { name: "HW", width: "120px", num: true, value: (p) => p.log?.high_watermark ?? -1, show: (p) => number(p.log?.high_watermark) },
    { name: "LEO", width: "120px", num: true, value: (p) => p.log?.log_end_offset ?? -1, show: (p) => number(p.log?.log_end_offset) },
    { name: "Lag", width: "90px", num: true, value: lagOf, show: (p) => number(lagOf(p)) },
    { name: "Size", width: "90px", num: true, value: (p) => p.log?.size_bytes ?? -1, show: (p) => bytes(p.log?.size_bytes) },
  ];
  return html`<section class="panel" aria-label="Partitions">
    <div class="toolbar">
      <label class="check"><input type="checkbox" checked=${unwell}
        onChange=${() => replaceQuery(["topics", topic], { unwell: unwell ? "" : "1" })} />Only unhealthy partitions</label>
      ${data && html`<span class="faint small">${plural(data.length, "partition")}</span><${Age} of=${known} />`}
      <span class="grow"></span>
      <span class="faint small">HW: end of committed records. LEO: end of the leader's log. Lag: records that the slowest replica lacks.</span>
    </div>
    ${data
      ? html`<${Table} label="Partitions" columns=${columns} rows=${data} rowKey=${(p) => p.partition} sortedBy="Partition"
          empty=${unwell ? "All partitions are healthy." : "The topic has no partitions yet."} />`
      : html`<${Waiting} of=${known} />`}
  </section>`;
}

function lagOf(partition) {
  return partition.log?.max_lag_records ?? -1;
}

function Config({ topic, onChanged }) {
  const [editing, setEditing] = useState(false);
  const columns = [
    { name: "Key", width: "240px", show: (e) => html`<code>${e.key}</code>` },
    { name: "Effective value", width: "180px", show: (e) => e.value || NONE },
    { name: "Set", width: "110px", show: (e) => (e.is_set ? html`<span class="tag">for this topic</span>` : html`<span class="faint">default</span>`) },
    { name: "Description", show: (e) => html`<span class="dim" title=${e.description}>${e.description}</span>` },
  ];
  return html`<${Panel} title="Configuration" flush
      acts=${html`<button class="button" data-first-act onClick=${() => setEditing(true)}>Change…</button>`}>
      <${Table} label="Configuration" columns=${columns} rows=${topic.config} rowKey=${(e) => e.key} />
    <//>
    ${editing && html`<${ChangeConfig} topic=${topic} onClose=${() => setEditing(false)} onDone=${onChanged} />`}`;
}

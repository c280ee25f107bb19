// One topic: its partitions as they stand, and its configuration; how each is changed.
import { html, useState } from "../html.js";
import { all, at, change, get } from "../api.js";
import { NONE, brokers, bytes, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { go, href, replaceQuery } from "../router.js";
import { Act } from "../parts/act.js";
import { Facts, Live, PageHead, Panel, State, Waiting, tell } from "../parts/basics.js";
import { FactorAct, PartitionCountAct } from "../parts/topic_acts.js";
import { ConfigFields, setValues } from "../parts/topic_config.js";
import { Table } from "../parts/table.js";
import { healthOf, isLed } from "../verdict.js";
import { topicState } from "./topics.js";

const EVERY_MS = 2_000;
const TABS = [["", "Partitions"], ["config", "Configuration"]];

export function Topic({ topic, query }) {
  const tab = query.get("tab") ?? "";
  const [act, setAct] = useState("");
  // From then on nothing of it is asked for any more: it may be gone at any moment.
  const isGoing = act === "delete" || act === "deleted";
  const { data, error, refresh } = usePolled((signal) => get(at("topics", topic), {}, signal), topic, EVERY_MS, isGoing);
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
      beside=${html`${data && html`<${State} tone=${tone}>${word}<//>`}<${Live} error=${error} />`}>
      <a class="button" href=${href(["records"], { topic })}>Look at records</a>
      ${data && html`
        <button class="button" onClick=${() => setAct("count")}>Partitions…</button>
        <button class="button" onClick=${() => setAct("factor")}>Replicas…</button>
        <button class="button danger" onClick=${() => setAct("delete")}>Delete…</button>`}
    <//>
    ${data
      ? html`<div class="stack">
          <${Panel}><div style=${{ paddingTop: "16px" }}><${Facts} of=${[
            ["Partitions", number(data.partitions)],
            ["Replicas of each", number(data.replication_factor)],
            ["Min ISR", valueOf(data, "min_insync_replicas") || "min(2, replicas)"],
            ["Durability", valueOf(data, "durability")],
            ["Topic id", html`<code>${data.topic_id}</code>`],
          ]} /></div><//>
          <nav class="tabs" aria-label="Of this topic">${TABS.map(([name, words]) => html`<a key=${name}
            href=${href(["topics", topic], { tab: name })} aria-current=${tab === name ? "true" : undefined}>${words}</a>`)}</nav>
          ${tab === "config"
            ? html`<${Config} topic=${data} onChanged=${refresh} />`
            : html`<${Partitions} topic=${topic} query=${query} paused=${isGoing} />`}
        </div>`
      : html`<${Waiting} error=${error} />`}
    ${act === "delete" && html`<${DeleteTopic} topic=${data} onDeleted=${leave} onClose=${close} />`}
    ${act === "count" && html`<${PartitionCountAct} topic=${data} onClose=${close} />`}
    ${act === "factor" && html`<${FactorAct} topic=${data} onClose=${close} />`}`;
}

function valueOf(topic, key) {
  return topic.config.find((entry) => entry.key === key)?.value ?? "";
}

function Partitions({ topic, query, paused }) {
  const unwell = query.get("unwell") === "1";
  const filters = { logs: true, unwell: unwell || undefined };
  const { data, error } = usePolled((signal) => all(at("topics", topic, "partitions"), filters, signal), `${topic}|${unwell}`, EVERY_MS, paused);
  const columns = [
    { name: "Partition", value: (p) => p.partition, show: (p) => html`<a href=${href(["topics", topic, String(p.partition)])}>${p.partition}</a>` },
    { name: "State", width: "150px", value: (p) => healthOf(p)[1], show: (p) => { const [tone, word] = healthOf(p); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Leader", width: "90px", num: true, value: (p) => p.leader ?? -1, show: (p) => html`${number(p.leader)}${isLed(p) && p.leader !== p.replicas[0] && html` <span class="faint" title=${`Broker ${p.replicas[0]} is preferred`}>*</span>`}` },
    { name: "In sync", width: "120px", value: (p) => p.isr.length, show: (p) => brokers(p.isr) },
    { name: "Replicas", width: "120px", show: (p) => brokers(p.replicas) },
    { name: "HW", width: "130px", num: true, value: (p) => p.log?.high_watermark ?? -1, show: (p) => number(p.log?.high_watermark) },
    { name: "LEO", width: "130px", num: true, value: (p) => p.log?.log_end_offset ?? -1, show: (p) => number(p.log?.log_end_offset) },
    { name: "Lag", width: "110px", num: true, value: lagOf, show: (p) => number(lagOf(p)) },
    { name: "Size", width: "100px", num: true, value: (p) => p.log?.size_bytes ?? -1, show: (p) => bytes(p.log?.size_bytes) },
  ];
  return html`<section class="panel" aria-label="Partitions">
    <div class="toolbar">
      <label class="check"><input type="checkbox" checked=${unwell}
        onChange=${() => replaceQuery(["topics", topic], { unwell: unwell ? "" : "1" })} />Only those that are not well</label>
      ${data && html`<span class="faint small">${plural(data.length, "partition")}</span>`}
      <span class="grow"></span>
      <span class="faint small">HW: committed up to here. LEO: the leader's end. Lag: records that the slowest replica lacks.</span>
    </div>
    ${data
      ? html`<${Table} label="Partitions" columns=${columns} rows=${data} rowKey=${(p) => p.partition} sortedBy="Partition"
          empty=${unwell ? "All partitions are well." : "It has no partitions yet."} />`
      : html`<${Waiting} error=${error} />`}
  </section>`;
}

function lagOf(partition) {
  return partition.log?.max_lag_records ?? -1;
}

function Config({ topic, onChanged }) {
  const [editing, setEditing] = useState(false);
  const columns = [
    { name: "Key", width: "240px", show: (e) => html`<code>${e.key}</code>` },
    { name: "In force", width: "180px", show: (e) => e.value || NONE },
    { name: "Set", width: "110px", show: (e) => (e.is_set ? html`<span class="tag">for it</span>` : html`<span class="faint">default</span>`) },
    { name: "What it does", show: (e) => html`<span class="dim" title=${e.description}>${e.description}</span>` },
  ];
  return html`<${Panel} title="Configuration" flush
      acts=${html`<button class="button" data-first-act onClick=${() => setEditing(true)}>Change…</button>`}>
      <${Table} label="Configuration" columns=${columns} rows=${topic.config} rowKey=${(e) => e.key} />
    <//>
    ${editing && html`<${ChangeConfig} topic=${topic} onClose=${() => setEditing(false)} onDone=${onChanged} />`}`;
}

function ChangeConfig({ topic, onClose, onDone }) {
  const before = Object.fromEntries(topic.config.map((e) => [e.key, e.is_set ? e.value : ""]));
  const defaults = Object.fromEntries(topic.config.map((e) => [e.key, e.default_value]));
  const [values, setValuesNow] = useState(before);
  const changed = Object.keys(values).filter((key) => values[key] !== before[key]);
  const body = {
    set: setValues(Object.fromEntries(changed.map((key) => [key, values[key]]))),
    unset: changed.filter((key) => values[key] === ""),
  };
  // As it was when the dialog opened: what somebody else has changed since is not overwritten.
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
    show=${(plan) => html`<${Table} label="What would change" columns=${columns} rows=${plan.changes} rowKey=${(c) => c.key} empty="Nothing: all is as asked for." />`}
    run=${() => send({})}
    done=${() => {
      tell(`The configuration of ${topic.topic} is changed.`);
      onDone();
    }}
    onClose=${onClose} />`;
}

function DeleteTopic({ topic, onDeleted, onClose }) {
  const send = (query) => change("DELETE", at("topics", topic.topic), undefined, { query, revision: undefined });
  return html`<${Act} title=${`Delete ${topic.topic}`} verb="Delete it with its data" danger confirm=${topic.topic} narrow
    plan=${() => send({ dry_run: true, confirm: topic.topic })}
    show=${(plan) => html`<p><strong>${plural(plan.partitions, "partition")}</strong> with all records would be deleted, on
      brokers ${brokers(plan.brokers)}. Nothing brings them back.</p>`}
    run=${() => send({ confirm: topic.topic })}
    done=${(answer) => {
      const late = answer?.pending_brokers?.length ? ` Brokers ${brokers(answer.pending_brokers)} have yet to delete their replicas.` : "";
      tell(`Topic ${topic.topic} is deleted.${late}`);
      onDeleted();
    }}
    onClose=${onClose} />`;
}

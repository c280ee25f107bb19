// All topics, and how a new one is made.
import { html, useState } from "../html.js";
import { all, change, newOperationId } from "../api.js";
import { brokers, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { href, replaceQuery } from "../router.js";
import { Act } from "../parts/act.js";
import { Field, Live, PageHead, Panel, State, TopicLink, Waiting, tell } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { Table } from "../parts/table.js";
import { ConfigFields, setValues } from "../parts/topic_config.js";

const EVERY_MS = 2_000;
const MAX_PLACED = 100;

export function Topics({ query }) {
  const search = query.get("search") ?? "";
  const internal = query.get("internal") === "1";
  const unwell = query.get("unwell") === "1";
  const [creating, setCreating] = useState(false);
  const filters = { name_contains: search, internal: internal || undefined, unwell: unwell || undefined };
  const { data, error, refresh } = usePolled((signal) => all("topics", filters, signal), JSON.stringify(filters), EVERY_MS);
  const filter = (changed) =>
    replaceQuery(["topics"], { search, internal: internal ? "1" : "", unwell: unwell ? "1" : "", ...changed });

  return html`<${PageHead} title="Topics" beside=${html`<${Live} error=${error} />`}>
      <button class="button primary" data-first-act onClick=${() => setCreating(true)}><${Icon} name="plus" />Create topic</button>
    <//>
    <section class="panel" aria-label="Topics">
      <div class="toolbar">
        <input type="search" placeholder="Find a topic ( / )" aria-label="Find a topic" value=${search}
          onInput=${(event) => filter({ search: event.target.value })} />
        <label class="check"><input type="checkbox" checked=${unwell} onChange=${() => filter({ unwell: unwell ? "" : "1" })} />Only those that are not well</label>
        <label class="check"><input type="checkbox" checked=${internal} onChange=${() => filter({ internal: internal ? "" : "1" })} />The cluster's own, too</label>
        ${data && html`<span class="faint small">${plural(data.length, "topic")}</span>`}
      </div>
      ${data ? html`<${TopicTable} topics=${data} filtered=${search || unwell} />` : html`<${Waiting} error=${error} />`}
    </section>
    ${creating && html`<${CreateTopic} onClose=${() => setCreating(false)} onDone=${refresh} />`}`;
}

function TopicTable({ topics, filtered }) {
  const columns = [
    { name: "Topic", value: (t) => t.topic, show: (t) => html`<${TopicLink} topic=${t.topic} />${t.internal && html` <span class="tag">internal</span>`}` },
    { name: "State", width: "200px", value: (t) => topicState(t)[1], show: (t) => { const [tone, word] = topicState(t); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Partitions", width: "120px", num: true, value: (t) => t.partitions, show: (t) => number(t.partitions) },
    { name: "Replicas each", width: "130px", num: true, value: (t) => t.replication_factor, show: (t) => number(t.replication_factor) },
    { name: "Set for it", width: "26%", show: (t) => html`<span class="dim small">${setOf(t)}</span>` },
  ];
  return html`<${Table} label="Topics" columns=${columns} rows=${topics} rowKey=${(t) => t.topic} sortedBy="Topic"
    empty=${filtered ? "No topic is like that." : "There is no topic yet."} />`;
}

export function topicState(topic) {
  if (topic.deleting) return ["warn", "being deleted"];
  if (topic.partitions_being_removed > 0) return ["warn", "losing partitions"];
  if (topic.without_leader > 0) return ["bad", `${number(topic.without_leader)} without a leader`];
  if (topic.below_min_isr > 0) return ["bad", `${number(topic.below_min_isr)} under min ISR`];
  if (topic.under_replicated > 0) return ["warn", `${number(topic.under_replicated)} out of sync`];
  return ["ok", "in sync"];
}

function setOf(topic) {
  return Object.entries(topic.config).map(([key, value]) => `${key}=${value}`).join(", ");
}

function CreateTopic({ onClose, onDone }) {
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
      <${Field} label="Replicas of each" hint="Each on a broker of its own">
        <input name="replication_factor" type="number" min="1" value=${factor} onInput=${(event) => setFactor(event.target.value)} />
      <//>
    </div>
    <details><summary>Configuration</summary><${ConfigFields} values=${config} onChange=${setConfig} /></details>`;
  return html`<${Act} title="Create a topic" verb="Create it" form=${form} ready=${topic !== ""} subject=${JSON.stringify(body)}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => html`<${Placement} topic=${topic} assignment=${plan.assignment} />`}
    run=${(plan) => send({}, { operation_id: id, ...exactly(plan.assignment) })}
    done=${(answer) => {
      const late = answer.pending_brokers?.length ? ` Brokers ${brokers(answer.pending_brokers)} have yet to start their replicas.` : "";
      tell(`Topic ${topic} is created.${late}`, { name: "Open it", target: href(["topics", topic]) });
      onDone();
    }}
    onClose=${onClose} />`;
}

// A request takes so many by hand; beyond it the controller places them anew.
const MAX_ASSIGNED = 1_000;

function exactly(assignment) {
  return assignment.length <= MAX_ASSIGNED ? { assignment } : {};
}

export function Placement({ topic, assignment, first = 0 }) {
  const rows = assignment.slice(0, MAX_PLACED).map((replicas, at) => ({ partition: first + at, replicas }));
  const columns = [
    { name: "Partition", value: (row) => `${topic}/${row.partition}` },
    { name: "Preferred leader", width: "150px", show: (row) => html`Broker ${row.replicas[0]}` },
    { name: "Replicas on brokers", width: "200px", show: (row) => brokers(row.replicas) },
  ];
  return html`<p><strong>${plural(assignment.length, "partition")}</strong> would be placed like this:</p>
    <${Table} label="Where partitions would lie" columns=${columns} rows=${rows} rowKey=${(row) => row.partition} />
    ${assignment.length > rows.length && html`<p class="faint small">The first ${rows.length} are shown.</p>`}`;
}

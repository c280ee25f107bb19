// All topics with their states.
import { html, useState } from "../html.js";
import { all } from "../api.js";
import { number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { replaceQuery } from "../router.js";
import { Live, PageHead, Stale, State, TopicLink, Unprotected, Waiting } from "../parts/basics.js";
import { Icon } from "../parts/icons.js";
import { Table } from "../parts/table.js";
import { CreateTopic } from "../parts/topic_acts.js";
import { COLUMNS, sumsOf } from "../topic_figures.js";
import { topicState } from "../verdict.js";

const EVERY_MS = 2_000;

export function Topics({ query }) {
  const search = query.get("search") ?? "";
  const internal = query.get("internal") === "1";
  const unwell = query.get("unwell") === "1";
  const [creating, setCreating] = useState(false);
  const filters = { name_contains: search, internal: internal || undefined, unwell: unwell || undefined };
  const known = usePolled((signal) => all("topics", filters, signal), JSON.stringify(filters), EVERY_MS);
  const { data, refresh } = known;
  const filter = (changed) =>
    replaceQuery(["topics"], { search, internal: internal ? "1" : "", unwell: unwell ? "1" : "", ...changed });

  return html`<${PageHead} title="Topics" beside=${html`<${Live} of=${known} />`}>
      <button class="button primary" data-first-act onClick=${() => setCreating(true)}><${Icon} name="plus" />Create topic</button>
    <//>
    <div class="stack">
      <${Stale} of=${known} />
      <section class="panel" aria-label="Topics">
        <div class="toolbar">
          <input type="search" placeholder="Find a topic ( / )" aria-label="Find a topic" value=${search}
            onInput=${(event) => filter({ search: event.target.value })} />
          <label class="check"><input type="checkbox" checked=${unwell} onChange=${() => filter({ unwell: unwell ? "" : "1" })} />Only unhealthy topics</label>
          <label class="check"><input type="checkbox" checked=${internal} onChange=${() => filter({ internal: internal ? "" : "1" })} />Also internal topics</label>
          ${data && html`<span class="sums" aria-label="Sums">${[plural(data.length, "topic"), ...sumsOf(data)].join(" · ")}</span>`}
        </div>
        ${data ? html`<${TopicTable} topics=${data} filtered=${search || unwell} />` : html`<${Waiting} of=${known} />`}
      </section>
    </div>
    ${creating && html`<${CreateTopic} onClose=${() => setCreating(false)} onDone=${refresh} />`}`;
}

function TopicTable({ topics, filtered }) {
  const columns = [
    { name: "Topic", value: (t) => t.topic, show: (t) => html`<${TopicLink} topic=${t.topic} />${t.internal && html` <span class="tag">internal</span>`}` },
    { name: "State", width: "150px", value: (t) => topicState(t)[1], show: (t) => { const [tone, word] = topicState(t); return html`<${State} tone=${tone}>${word}<//>`; } },
    { name: "Partitions", width: "84px", num: true, value: (t) => t.partitions, show: (t) => number(t.partitions) },
    { name: "Replicas", width: "116px", num: true, value: (t) => t.replication_factor, show: (t) => html`${t.replication_factor === 1 && html`<${Unprotected} /> `}${number(t.replication_factor)}` },
    ...COLUMNS.map(({ name, width, of }) => ({ name, width, num: true, value: (t) => of(t.figures).value ?? -1, show: (t) => of(t.figures).text })),
    { name: "Set values", width: "190px", show: (t) => html`<span class="dim small">${setOf(t)}</span>` },
  ];
  return html`<${Table} label="Topics" columns=${columns} rows=${topics} rowKey=${(t) => t.topic} sortedBy="Topic"
    empty=${filtered ? "No topic matches." : "There is no topic yet."} />`;
}

function setOf(topic) {
  return Object.entries(topic.config).map(([key, value]) => `${key}=${value}`).join(", ");
}

// One record at its own address, with its neighbours.
import { html, useState } from "../html.js";
import { at, get } from "../api.js";
import { number } from "../format.js";
import { usePolled } from "../live.js";
import { href } from "../router.js";
import { PageHead, Panel, Stale, Waiting } from "../parts/basics.js";
import { ProduceAct } from "../parts/produce.js";
import { Content, Export, recordLink } from "../parts/record_table.js";
import { fieldsOf } from "../record_form.js";

// A record never changes, but retention may delete it.
const EVERY_MS = 60_000;

export function RecordPage({ topic, partition, offset }) {
  const path = at("topics", topic, "partitions", partition, "records", offset);
  const known = usePolled((signal) => get(path, { encoding: "text" }, signal), path, EVERY_MS);
  const { data } = known;
  const [isCopied, setCopied] = useState(false);
  const around = href(["records"], { topic, partition, from: "offset", offset: Math.max(0, offset - 10) });
  return html`<${PageHead} title=${`${topic}/${partition}, offset ${number(offset)}`}
      crumbs=${[["Topics", href(["topics"])], [topic, href(["topics", topic])], [`${topic}/${partition}`, href(["topics", topic, String(partition)])], ["Records", href(["records"], { topic, partition })]]}>
      ${offset > 0 && html`<a class="button" href=${recordLink(topic, { partition, offset: offset - 1 })}>Older</a>`}
      <a class="button" href=${recordLink(topic, { partition, offset: offset + 1 })}>Newer</a>
      <a class="button" href=${around}>Records around this one</a>
      ${data && !topic.startsWith("__") && html`<button class="button" onClick=${() => setCopied(true)}>Produce a copy…</button>`}
    <//>
    ${data
      ? html`<div class="stack"><${Stale} of=${known} />
          <${Panel} title="Record" acts=${html`<${Export} topic=${topic} records=${[data]} />`}><${Content} record=${data} /><//></div>`
      : html`<${Waiting} of=${known} />`}
    ${data && isCopied && html`<${ProduceAct} topic=${topic} initial=${fieldsOf(data)} onClose=${() => setCopied(false)} />`}`;
}

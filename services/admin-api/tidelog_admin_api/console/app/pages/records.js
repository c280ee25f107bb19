// Records of one partition or of all: the newest, or from an offset or a time, optionally with a key.
import { html, useMemo, useState } from "../html.js";
import { all, at, get } from "../api.js";
import { NONE, clock, exactTime, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { href, replaceQuery } from "../router.js";
import { Dialog, Empty, Field, Live, PageHead, ProblemNote, Stale, Waiting } from "../parts/basics.js";
import { shownValue } from "../parts/record_text.js";
import { Table } from "../parts/table.js";

const EVERY_MS = 3_000;
const TOPICS_EVERY_MS = 15_000;
// Partitions that are read at a time.
const MAX_PARTITIONS = 24;
// Topics with more partitions have a number field, since a list of thousands is slow.
const MAX_OPTIONS = 100;
const COUNTS = [20, 50, 100, 500];
const PREVIEW = 160;
const MAX_DAMAGED_NAMED = 5;
const NEVER_MS = 3_600_000;

export function Records({ query }) {
  const asked = {
    topic: query.get("topic") ?? "",
    partition: query.get("partition") ?? "",
    first: query.get("first") ?? "",
    from: query.get("from") ?? "newest",
    offset: query.get("offset") ?? "0",
    time: query.get("time") ?? "",
    count: Number(query.get("count") ?? COUNTS[1]),
    key: query.get("key") ?? "",
    has: query.get("has") ?? "",
  };
  const set = (changed) => replaceQuery(["records"], { ...asked, ...changed });
  const topics = usePolled((signal) => all("topics", { internal: true }, signal), "topics", TOPICS_EVERY_MS);
  const topic = topics.data?.find((one) => one.topic === asked.topic);
  return html`<${PageHead} title="Records" crumbs=${asked.topic ? [["Topics", href(["topics"])], [asked.topic, href(["topics", asked.topic])]] : undefined} />
    <section class="panel" aria-label="Records">
      <${Choice} asked=${asked} set=${set} topics=${topics.data ?? []} topic=${topic} />
      ${asked.topic === ""
        ? html`<${Empty} title="Choose a topic.">Reading does not change records.<//>`
        : topic
          ? html`<${Parts} asked=${asked} topic=${topic} onChange=${(first) => set({ first })} />
              <${Read} key=${ofAsked(asked)} asked=${asked} topic=${topic} />`
          : topics.data
            ? html`<${Empty} title="Not found">${`There is no topic ${asked.topic}.`}<//>`
            : html`<${Waiting} of=${topics} />`}
    </section>`;
}

function Choice({ asked, set, topics, topic }) {
  return html`<div class="toolbar ask">
    <${Field} label="Topic"><select name="topic" value=${asked.topic} onChange=${(event) => set({ topic: event.target.value, partition: "", first: "" })}>
      <option value="">Choose…</option>
      ${topics.map((one) => html`<option key=${one.topic} value=${one.topic}>${one.topic}</option>`)}
    </select><//>
    <${Field} label="Partition"><${PartitionChoice} count=${topic?.partitions ?? 0} chosen=${asked.partition}
      onChange=${(event) => set({ partition: event.target.value, first: "" })} /><//>
    <${Field} label="From"><select name="from" value=${asked.from} onChange=${(event) => set({ from: event.target.value })}>
      <option value="newest">the newest</option><option value="offset">an offset on</option><option value="time">a time on</option>
    </select><//>
    ${asked.from === "offset" && html`<${Field} label="Offset"><input name="offset" type="number" min="0" value=${asked.offset} onChange=${(event) => set({ offset: event.target.value })} /><//>`}
    ${asked.from === "time" && html`<${Field} label="Time"><input name="time" type="datetime-local" step="1" value=${asked.time} onChange=${(event) => set({ time: event.target.value })} /><//>`}
    <${Field} label="At most"><select name="count" value=${asked.count} onChange=${(event) => set({ count: event.target.value })}>
      ${COUNTS.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select><//>
    <${Field} label="With the key"><input class="short" name="key" value=${asked.key} autocomplete="off" spellcheck=${false}
      title="Searched for among the last 10,000 records of each partition, or among as many from the start" onChange=${(event) => set({ key: event.target.value })} /><//>
    <${Field} label="Key or value has"><input type="search" value=${asked.has} onInput=${(event) => set({ has: event.target.value })} /><//>
  </div>`;
}

function PartitionChoice({ count, chosen, onChange }) {
  if (count > MAX_OPTIONS) {
    return html`<input class="shorter" name="partition" type="number" min="0" max=${count - 1} placeholder="all" value=${chosen} onChange=${onChange} />`;
  }
  return html`<select name="partition" value=${chosen} onChange=${onChange}>
    <option value="">all</option>
    ${Array.from({ length: count }, (_, one) => html`<option key=${one} value=${one}>${one}</option>`)}
  </select>`;
}

/** The partitions to read: the chosen one, or MAX_PARTITIONS of all from `first`. */
export function partitionsRead({ partition, first }, count) {
  if (partition !== "") return [Number(partition)];
  const from = Math.max(0, Math.min(Math.floor(Number(first)) || 0, count - 1));
  return Array.from({ length: Math.min(MAX_PARTITIONS, count - from) }, (_, at) => from + at);
}

/** For a topic with more than MAX_PARTITIONS: the partitions that are read, and buttons for others. */
function Parts({ asked, topic: { partitions: count }, onChange }) {
  const shown = partitionsRead(asked, count);
  if (asked.partition !== "" || shown.length === count) return null;
  const [from, until] = [shown[0], shown.at(-1)];
  return html`<div class="toolbar plain small" role="group" aria-label="Partitions that are read">
    <span>Partitions <strong>${from} to ${until}</strong> of ${number(count)}: the others are left out.</span>
    <button class="button compact" disabled=${from === 0} onClick=${() => onChange(String(Math.max(0, from - MAX_PARTITIONS)))}>Previous</button>
    <button class="button compact" disabled=${until === count - 1} onClick=${() => onChange(String(until + 1))}>Next</button>
  </div>`;
}

/** The parameters of requests. `has` filters the answer in the browser. */
function ofAsked(asked) {
  return JSON.stringify({ ...asked, has: "" });
}

function startOf(asked) {
  if (asked.from === "offset") return { offset: Number(asked.offset) || 0 };
  if (asked.from === "time") return { timestamp_ms: new Date(asked.time).getTime() || 0 };
  return { latest: asked.count };
}

async function read(asked, topic, signal) {
  const chosen = partitionsRead(asked, topic.partitions);
  const query = { ...startOf(asked), max_records: asked.count, key: asked.key, encoding: "text", on_damage: "skip" };
  const pages = await Promise.allSettled(chosen.map((p) => get(at("topics", asked.topic, "partitions", p, "records"), query, signal)));
  const good = pages.filter((page) => page.status === "fulfilled").map((page) => page.value);
  const silent = chosen.filter((_, at) => pages[at].status === "rejected");
  const problem = pages.find((page) => page.status === "rejected")?.reason ?? null;
  if (!good.length && problem) throw problem;
  const records = good.flatMap((page) => page.items);
  const newest = asked.from === "newest";
  records.sort((a, b) => (newest ? -1 : 1) * (a.timestamp_ms - b.timestamp_ms || a.offset - b.offset));
  const damaged = chosen.flatMap((partition, at) => (pages[at].value?.damaged ?? []).map((range) => ({ ...range, partition })));
  return { records: records.slice(0, asked.count), problem, silent, damaged };
}

function Read({ asked, topic }) {
  const [open, setOpen] = useState(null);
  // A search reads many records, and is not repeated automatically.
  const isLive = asked.from === "newest" && asked.key === "";
  const known = usePolled((signal) => read(asked, topic, signal), ofAsked(asked), isLive ? EVERY_MS : NEVER_MS);
  const { data } = known;
  const shown = useMemo(() => (data?.records ?? []).filter((record) => has(record, asked.has)), [data, asked.has]);
  if (!data) return html`<${Waiting} of=${known} />`;
  const keyOf = (record) => `${record.partition}/${record.offset}`;
  const columns = [
    { name: "Partition", width: "90px", num: true, value: (r) => r.partition, show: (r) => html`<a href=${href(["topics", asked.topic, String(r.partition)])}>${r.partition}</a>` },
    { name: "Offset", width: "110px", num: true, value: (r) => r.offset, show: (r) => number(r.offset) },
    { name: "Time", width: "170px", value: (r) => r.timestamp_ms, show: (r) => html`<time title=${exactTime(r.timestamp_ms)}>${clock(r.timestamp_ms, true)}</time>` },
    { name: "Key", width: "20%", value: (r) => r.key ?? "", show: (r) => (r.key == null ? html`<span class="faint">none</span>` : html`<code>${r.key}</code>`) },
    { name: "Value", show: (r) => html`<code class="dim">${(r.value ?? "").slice(0, PREVIEW)}</code>` },
    { name: "Whole", width: "84px", show: (r) => html`<button class="button quiet compact" aria-haspopup="dialog" aria-label=${`Whole record ${keyOf(r)}`} onClick=${() => setOpen(r)}>Open</button>` },
  ];
  return html`${(known.error || known.late) && html`<div style=${{ padding: "12px 16px 0" }}><${Stale} of=${known} /></div>`}
    <div class="row small" style=${{ padding: "8px 16px" }}>
      <span class="faint">${plural(shown.length, "record")}${asked.has && ` of ${data.records.length}`}</span>
      ${isLive && html`<${Live} of=${known} />`}
    </div>
    ${data.problem && html`<div style=${{ padding: "0 16px 12px" }}>
      <p class="warned">Left out, because they cannot be read: ${plural(data.silent.length, "partition")}, ${data.silent.join(", ")}.</p>
      <${ProblemNote} problem=${data.problem} /></div>`}
    ${data.damaged.length > 0 && html`<div style=${{ padding: "0 16px 12px" }}><p class="warned" role="status">${damagedWords(data.damaged)}</p></div>`}
    <${Table} label="Records" columns=${columns} rows=${shown} rowKey=${keyOf} empty=${emptyWords(asked, data.records)} />
    ${open && html`<${Whole} topic=${asked.topic} record=${open} onClose=${() => setOpen(null)} />`}`;
}

/** `ranges`: [{partition, first_offset, next_offset}]. */
export function damagedWords(ranges) {
  const named = ranges.slice(0, MAX_DAMAGED_NAMED).map((one) => `partition ${one.partition}, offsets ${number(one.first_offset)} to ${number(one.next_offset - 1)}`);
  const more = ranges.length > named.length ? `; and ${number(ranges.length - named.length)} more` : "";
  return `Left out, because the last disk that held them has damaged them: ${named.join("; ")}${more}.`;
}

function emptyWords(asked, records) {
  if (records.length) return "No record matches.";
  return asked.key === "" ? "There are no records here." : "None of the records that were read has this key.";
}

function has(record, sought) {
  if (!sought) return true;
  return `${record.key ?? ""} ${record.value ?? ""}`.toLowerCase().includes(sought.toLowerCase());
}

function Whole({ topic, record, onClose }) {
  const { text, as } = shownValue(record.value, record.value_encoding);
  return html`<${Dialog} title=${`${topic}/${record.partition}, offset ${number(record.offset)}`} onClose=${onClose}><div class="stack">
    <p class="small dim">${clock(record.timestamp_ms, true)} · key ${record.key == null ? NONE : html`<code>${record.key}</code>`}
      · value as ${as}</p>
    ${record.headers?.length > 0 && html`<p class="small">${record.headers.map((header) => html`<span class="tag">${header.key}: ${header.value}</span> `)}</p>`}
    <pre>${text || NONE}</pre>
  </div><//>`;
}

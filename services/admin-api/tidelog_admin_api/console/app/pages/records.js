// Records of one partition or of all: pages of them, and a search of a range.
import { html, useMemo, useState } from "../html.js";
import { all, at, get } from "../api.js";
import { number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { href, replaceQuery } from "../router.js";
import { Empty, Field, Live, PageHead, ProblemNote, Stale, Waiting } from "../parts/basics.js";
import { PartitionChoice } from "../parts/partition_choice.js";
import { ProduceAct } from "../parts/produce.js";
import { Pager, neighbours, offsetsOf } from "../parts/record_pager.js";
import { RecordSearch, searchFields } from "../parts/record_search.js";
import { Export, RecordTable } from "../parts/record_table.js";

const EVERY_MS = 3_000;
const TOPICS_EVERY_MS = 15_000;
// Partitions that are read at a time.
const MAX_PARTITIONS = 24;
const COUNTS = [20, 50, 100, 500];
const TABS = [["", "Pages"], ["search", "Search"]];
const MAX_DAMAGED_NAMED = 5;
const NEVER_MS = 3_600_000;

export function Records({ query }) {
  const asked = {
    topic: query.get("topic") ?? "",
    tab: query.get("tab") ?? "",
    partition: query.get("partition") ?? "",
    first: query.get("first") ?? "",
    from: query.get("from") ?? "newest",
    offset: query.get("offset") ?? "0",
    at: query.get("at") ?? "",
    time: query.get("time") ?? "",
    count: Number(query.get("count") ?? COUNTS[1]),
    key: query.get("key") ?? "",
    has: query.get("has") ?? "",
    ...searchFields(query),
  };
  const set = (changed) => replaceQuery(["records"], { ...asked, ...changed });
  const topics = usePolled((signal) => all("topics", { internal: true }, signal), "topics", TOPICS_EVERY_MS);
  const topic = topics.data?.find((one) => one.topic === asked.topic);
  const [isProducing, setProducing] = useState(false);
  return html`<${PageHead} title="Records" crumbs=${asked.topic ? [["Topics", href(["topics"])], [asked.topic, href(["topics", asked.topic])]] : undefined}>
      ${topic && !topic.internal && html`<button class="button" data-first-act=${asked.tab !== "search" || undefined} onClick=${() => setProducing(true)}>Produce…</button>`}
    <//>
    <section class="panel" aria-label="Records">
      <${Choice} asked=${asked} set=${set} topics=${topics.data ?? []} topic=${topic} />
      ${asked.topic === ""
        ? html`<${Empty} title="Choose a topic.">Reading does not change records.<//>`
        : topic
          ? html`<nav class="tabs" aria-label="Ways to read records">${TABS.map(([tab, words]) => html`<a key=${tab}
                href=${href(["records"], { ...asked, tab })} aria-current=${tab === asked.tab ? "true" : undefined}>${words}</a>`)}</nav>
              ${asked.tab === "search"
                ? html`<${RecordSearch} key=${`${asked.topic}/${asked.partition}`} asked=${asked} set=${set} topic=${topic} />`
                : html`<${Parts} asked=${asked} topic=${topic} onChange=${(first) => set(asked.at ? { first, from: "newest", at: "" } : { first })} />
                    <${Read} asked=${asked} topic=${topic} />`}`
          : topics.data
            ? html`<${Empty} title="Not found">${`There is no topic ${asked.topic}.`}<//>`
            : html`<${Waiting} of=${topics} />`}
    </section>
    ${topic && isProducing && html`<${ProduceAct} topic=${topic.topic} initial=${{ partition: asked.partition }} onClose=${() => setProducing(false)} />`}`;
}

function Choice({ asked, set, topics, topic }) {
  const isSearch = asked.tab === "search";
  return html`<div class="toolbar ask">
    <${Field} label="Topic"><select name="topic" value=${asked.topic} onChange=${(event) => set({ topic: event.target.value, partition: "", first: "", at: "" })}>
      <option value="">Choose…</option>
      ${topics.map((one) => html`<option key=${one.topic} value=${one.topic}>${one.topic}</option>`)}
    </select><//>
    <${Field} label="Partition"><${PartitionChoice} count=${topic?.partitions ?? 0} chosen=${asked.partition}
      onChange=${(event) => set({ partition: event.target.value, first: "", at: "" })} /><//>
    ${!isSearch && html`<${Field} label="Range"><select name="from" value=${asked.from} onChange=${(event) => set({ from: event.target.value, at: "" })}>
      <option value="newest">newest records</option><option value="offset">from an offset</option><option value="before">before an offset</option><option value="time">from a time</option>
    </select><//>
    ${["offset", "before"].includes(asked.from) && html`<${Field} label="Offset"><input name="offset" type="number" min="0" value=${asked.offset} onChange=${(event) => set({ offset: event.target.value, at: "" })} /><//>`}
    ${asked.from === "time" && html`<${Field} label="Time"><input name="time" type="datetime-local" step="1" value=${asked.time} onChange=${(event) => set({ time: event.target.value })} /><//>`}`}
    <${Field} label="Maximum"><select name="count" value=${asked.count} onChange=${(event) => set({ count: event.target.value })}>
      ${COUNTS.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select><//>
    ${!isSearch && html`<${Field} label="Key is"><input class="short" name="key" value=${asked.key} autocomplete="off" spellcheck=${false}
      title="Among the last 10,000 records of each partition, or the first 10,000 of the range" onChange=${(event) => set({ key: event.target.value })} /><//>
    <${Field} label="On this page, key or value contains"><input type="search" value=${asked.has} onInput=${(event) => set({ has: event.target.value })} /><//>`}
  </div>`;
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
    <span>Partitions <strong>${from} to ${until}</strong> of ${number(count)}; the others are left out.</span>
    <button class="button compact" disabled=${from === 0} onClick=${() => onChange(String(Math.max(0, from - MAX_PARTITIONS)))}>Previous</button>
    <button class="button compact" disabled=${until === count - 1} onClick=${() => onChange(String(until + 1))}>Next</button>
  </div>`;
}

/** The parameters of requests. `has` filters the loaded records in the browser. */
function ofAsked({ topic, partition, first, from, offset, at: place, time, count, key }) {
  return JSON.stringify([topic, partition, first, from, offset, place, time, count, key]);
}

function startOf(asked, partition) {
  const offset = asked.at ? (offsetsOf(asked.at)[partition] ?? 0) : Number(asked.offset) || 0;
  if (asked.from === "offset") return { offset };
  if (asked.from === "before") return { before_offset: offset };
  if (asked.from === "time") return { timestamp_ms: new Date(asked.time).getTime() || 0 };
  return { latest: asked.count };
}

async function read(asked, topic, signal) {
  const chosen = partitionsRead(asked, topic.partitions);
  const query = { max_records: asked.count, key: asked.key, encoding: "text", on_damage: "skip" };
  const pages = await Promise.allSettled(
    chosen.map((p) => get(at("topics", asked.topic, "partitions", p, "records"), { ...query, ...startOf(asked, p) }, signal)),
  );
  const good = pages.filter((page) => page.status === "fulfilled").map((page) => page.value);
  const silent = chosen.filter((_, at) => pages[at].status === "rejected");
  const problem = pages.find((page) => page.status === "rejected")?.reason ?? null;
  if (!good.length && problem) throw problem;
  const records = good.flatMap((page) => page.items);
  const isBackwards = asked.from === "newest" || asked.from === "before";
  records.sort((a, b) => (isBackwards ? -1 : 1) * (a.timestamp_ms - b.timestamp_ms || a.offset - b.offset));
  const damaged = chosen.flatMap((partition, at) => (pages[at].value?.damaged ?? []).map((range) => ({ ...range, partition })));
  const shown = records.slice(0, asked.count);
  const answered = Object.fromEntries(chosen.map((p, index) => [p, pages[index].value]).filter(([, page]) => page));
  return { records: shown, around: neighbours(answered, shown, isBackwards), problem, silent, damaged };
}

function Read({ asked, topic }) {
  // A read with a key reads many records, and is not repeated automatically.
  const isLive = asked.from === "newest" && asked.key === "";
  const known = usePolled((signal) => read(asked, topic, signal), ofAsked(asked), isLive ? EVERY_MS : NEVER_MS);
  const { data } = known;
  const shown = useMemo(() => (data?.records ?? []).filter((record) => has(record, asked.has)), [data, asked.has]);
  const pager = html`<${Pager} around=${data?.around ?? null} records=${data?.records ?? []} asked=${asked} />`;
  if (!data) return html`${pager}<${Waiting} of=${known} />`;
  return html`${pager}
    ${(known.error || known.late) && html`<div style=${{ padding: "12px 16px 0" }}><${Stale} of=${known} /></div>`}
    <div class="row small" style=${{ padding: "8px 16px" }}>
      <span class="faint">${plural(shown.length, "record")}${asked.has && ` of ${data.records.length} on this page`}</span>
      ${asked.has && html`<${ToSearch} asked=${asked} />`}
      ${isLive && html`<${Live} of=${known} />`}
      <${Export} topic=${asked.topic} records=${shown} />
    </div>
    ${data.problem && html`<div style=${{ padding: "0 16px 12px" }}>
      <p class="warned">Left out, because they cannot be read: ${plural(data.silent.length, "partition")}, ${data.silent.join(", ")}.</p>
      <${ProblemNote} problem=${data.problem} /></div>`}
    ${data.damaged.length > 0 && html`<div style=${{ padding: "0 16px 12px" }}><p class="warned" role="status">${damagedWords(data.damaged)}</p></div>`}
    <${RecordTable} topic=${asked.topic} records=${shown} empty=${emptyWords(asked, data.records)} />`;
}

/** The filter sees only records that are loaded. A search scans all. */
function ToSearch({ asked }) {
  const to = (criterion) => href(["records"], { ...asked, tab: "search", [criterion]: asked.has });
  return html`<span>Search all records: <a href=${to("value_contains")}>in values</a>, <a href=${to("key_contains")}>in keys</a></span>`;
}

/** `ranges`: [{partition, first_offset, next_offset}]. */
export function damagedWords(ranges) {
  const named = ranges.slice(0, MAX_DAMAGED_NAMED).map((one) => `partition ${one.partition}, offsets ${number(one.first_offset)} to ${number(one.next_offset - 1)}`);
  const more = ranges.length > named.length ? `; and ${number(ranges.length - named.length)} more` : "";
  return `Left out, because they are damaged on the last disk that held them: ${named.join("; ")}${more}.`;
}

function emptyWords(asked, records) {
  if (records.length) return "No record on this page matches.";
  return asked.key === "" ? "There are no records here." : "No record that was read has this key.";
}

function has(record, sought) {
  if (!sought) return true;
  return `${record.key ?? ""} ${record.value ?? ""}`.toLowerCase().includes(sought.toLowerCase());
}

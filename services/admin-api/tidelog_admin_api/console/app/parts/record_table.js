// Records as a table, each of them in full, and as files.
import { html, useState } from "../html.js";
import { NONE, clock, exactTime, number } from "../format.js";
import { download, toCsv, toJsonLines } from "../record_export.js";
import { href } from "../router.js";
import { Dialog } from "./basics.js";
import { shownValue } from "./record_text.js";
import { Table } from "./table.js";

const PREVIEW = 160;

export function recordLink(topic, { partition, offset }) {
  return href(["topics", topic, String(partition), "records", String(offset)]);
}

export function RecordTable({ topic, records, empty }) {
  const [open, setOpen] = useState(null);
  const keyOf = (record) => `${record.partition}/${record.offset}`;
  const columns = [
    { name: "Partition", width: "90px", num: true, value: (r) => r.partition, show: (r) => html`<a href=${href(["topics", topic, String(r.partition)])}>${r.partition}</a>` },
    { name: "Offset", width: "110px", num: true, value: (r) => r.offset, show: (r) => html`<a href=${recordLink(topic, r)}>${number(r.offset)}</a>` },
    { name: "Time", width: "170px", value: (r) => r.timestamp_ms, show: (r) => html`<time title=${exactTime(r.timestamp_ms)}>${clock(r.timestamp_ms, true)}</time>` },
    { name: "Key", width: "20%", value: (r) => r.key ?? "", show: (r) => (r.key == null ? html`<span class="faint">none</span>` : html`<code>${r.key}</code>`) },
    { name: "Value", show: (r) => html`<code class="dim">${(r.value ?? "").slice(0, PREVIEW)}</code>` },
    { name: "Record", width: "84px", show: (r) => html`<button class="button quiet compact" aria-haspopup="dialog" aria-label=${`Open record ${keyOf(r)}`} onClick=${() => setOpen(r)}>Open</button>` },
  ];
  return html`<${Table} label="Records" columns=${columns} rows=${records} rowKey=${keyOf} empty=${empty} />
    ${open && html`<${Whole} topic=${topic} record=${open} onClose=${() => setOpen(null)} />`}`;
}

/** Buttons that save the records as a file. */
export function Export({ topic, records }) {
  const save = (ending, type, text) => download(`${topic}-records.${ending}`, type, text);
  return html`<span class="row" role="group" aria-label="Save these records">
    <button class="button quiet compact" disabled=${!records.length} title="One JSON object per line, as in the REST API"
      onClick=${() => save("jsonl", "application/x-ndjson", toJsonLines(records))}>Save as JSON lines</button>
    <button class="button quiet compact" disabled=${!records.length} title="For spreadsheets; a text that resembles a formula gets an apostrophe in front"
      onClick=${() => save("csv", "text/csv", toCsv(records))}>Save as CSV</button>
  </span>`;
}

function Whole({ topic, record, onClose }) {
  return html`<${Dialog} title=${`${topic}/${record.partition}, offset ${number(record.offset)}`} onClose=${onClose}>
    <${Content} record=${record} />
    <p class="small"><a href=${recordLink(topic, record)}>Address of this record</a></p>
  <//>`;
}

/** Everything that a record has. */
export function Content({ record }) {
  const { text, as } = shownValue(record.value, record.value_encoding);
  return html`<div class="stack">
    <p class="small dim">${clock(record.timestamp_ms, true)} · key ${record.key == null ? NONE : html`<code>${record.key}</code>`}
      · value as ${as}</p>
    ${record.headers?.length > 0 && html`<p class="small">${record.headers.map((header) => html`<span class="tag">${header.key}: ${header.value}</span> `)}</p>`}
    <pre>${text || NONE}</pre>
  </div>`;
}

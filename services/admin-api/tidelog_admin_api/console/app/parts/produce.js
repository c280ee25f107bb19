// The dialog that produces one record. Records have no dry run: the form checks what it can, and
// states the size, before anything is sent.
import { html, useEffect, useRef, useState } from "../html.js";
import { at, change, get } from "../api.js";
import { bytes } from "../format.js";
import { usePolled } from "../live.js";
import { MAX_HEADERS, NEW_RECORD, outcomeOf, outcomeOfFailure, recordOf } from "../record_form.js";
import { href } from "../router.js";
import { Dialog, Field, ProblemNote, Waiting } from "./basics.js";
import { PartitionChoice } from "./partition_choice.js";
import { recordLink } from "./record_table.js";

const NEVER_MS = 3_600_000;
const FORMATS = [["text", "text"], ["json", "JSON"], ["base64", "base64"]];
const ACKS = [
  ["all", "all in-sync replicas"],
  ["leader", "the leader alone"],
  ["none", "none, not awaited"],
];

/** `initial`: fields of `NEW_RECORD`. */
export function ProduceAct({ topic, initial = {}, onClose }) {
  const known = usePolled((signal) => get(at("topics", topic), {}, signal), topic, NEVER_MS);
  const title = `Produce a record to ${topic}`;
  if (!known.data) return html`<${Dialog} title=${title} onClose=${onClose}><${Waiting} of=${known} /><//>`;
  return html`<${Form} title=${title} topic=${known.data} initial=${initial} onClose=${onClose} />`;
}

function Form({ title, topic, initial, onClose }) {
  const [fields, setFields] = useState({ ...NEW_RECORD, ...initial });
  const [isBusy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState(null);
  const [mayRepeat, setMayRepeat] = useState(false);
  const { body, bytes: size, wrong } = recordOf(fields, topic.partitions);
  const subject = JSON.stringify(body);
  // The same record is not sent twice by accident. Another one is another record.
  const isInDoubt = outcome?.kind === "unknown" && outcome.subject === subject;
  const canSend = !isBusy && Object.keys(wrong).length === 0 && (!isInDoubt || mayRepeat);
  const set = (changed) => setFields((before) => ({ ...before, ...changed }));

  async function send() {
    setBusy(true);
    setMayRepeat(false);
    const next = await change("POST", at("topics", topic.topic, "records"), body).then(outcomeOf, outcomeOfFailure);
    setOutcome({ ...next, subject });
    setBusy(false);
  }

  const submit = (event) => {
    event.preventDefault();
    if (canSend) send();
  };
  const isAgain = outcome?.kind === "written" || outcome?.kind === "sent";
  const footer = html`<span class="asks">${sizeWords(size, topic)}</span>
    <button class="button" type="button" onClick=${onClose}>${isAgain ? "Close" : "Cancel"}</button>
    <button class="button primary" form="produce" disabled=${!canSend}>${isBusy ? "Producing…" : isAgain ? "Produce another" : "Produce"}</button>`;
  return html`<${Dialog} title=${title} onClose=${onClose} footer=${footer}>
    <form id="produce" class="stack" onSubmit=${submit} onKeyDown=${(event) => event.key === "Enter" && event.ctrlKey && submit(event)}>
      <${Fields} fields=${fields} set=${set} wrong=${wrong} topic=${topic} />
      <div role="status">${isAgain && html`<${Done} topic=${topic.topic} of=${outcome} />`}</div>
      ${outcome?.kind === "rejected" && html`<${ProblemNote} problem=${outcome.problem} />`}
      ${isInDoubt && html`<${InDoubt} topic=${topic.topic} partition=${fields.partition} problem=${outcome.problem} mayRepeat=${mayRepeat} onChange=${setMayRepeat} />`}
    </form>
  <//>`;
}

function sizeWords(size, { config }) {
  const most = Number(config.find((entry) => entry.key === "max_batch_bytes")?.value);
  const limit = most > 0 ? ` of at most ${bytes(most)} after compression (max_batch_bytes)` : "";
  return `${bytes(size)}${limit}; a request has at most 2 MiB by default (max_body_bytes of the gateway).`;
}

function Fields({ fields, set, wrong, topic }) {
  const setsTime = topic.config.find((entry) => entry.key === "timestamp_type")?.value !== "append";
  return html`<div class="fields">
      <${Field} label="Partition" wrong=${wrong.partition} hint="Automatic: by the key; without a key, any">
        <${PartitionChoice} none="automatic" count=${topic.partitions} chosen=${fields.partition} onInput=${(event) => set({ partition: event.target.value })} />
      <//>
      <${Field} label="Acks" hint="Which replicas have to acknowledge it">
        <select name="acks" value=${fields.acks} onChange=${(event) => set({ acks: event.target.value })}>
          ${ACKS.map(([acks, words]) => html`<option key=${acks} value=${acks}>${words}</option>`)}
        </select>
      <//>
      <${Field} label="Timestamp, in local time" wrong=${wrong.time} hint=${setsTime ? "Empty: now" : "The leader replaces it at the append (timestamp_type)"}>
        <input name="time" type="datetime-local" step="0.001" value=${fields.time} onInput=${(event) => set({ time: event.target.value })} />
      <//>
    </div>
    <${Content} name="key" label="Key" rows="1" text=${fields.key} as=${fields.keyAs} hint="Empty: no key" wrong=${wrong.key} onChange=${(key, keyAs) => set({ key, keyAs })} />
    <${Content} name="value" label="Value" rows="6" autofocus text=${fields.value} as=${fields.valueAs} formats=${[...FORMATS, ["none", "no value"]]} wrong=${wrong.value} onChange=${(value, valueAs) => set({ value, valueAs })} />
    <${Headers} headers=${fields.headers} wrong=${wrong} onChange=${(headers) => set({ headers })} />`;
}

/** A text beside its format. */
function Content({ name, label, rows, text, as, formats = FORMATS, hint, wrong, autofocus = false, onChange }) {
  return html`<div class="content-field">
    <${Field} label=${`${label} format`}><select name=${`${name}-format`} value=${as} onChange=${(event) => onChange(text, event.target.value)}>
      ${formats.map(([format, words]) => html`<option key=${format} value=${format}>${words}</option>`)}
    </select><//>
    ${as !== "none" && html`<${Field} label=${label} wrong=${wrong} hint=${as === "json" ? "Checked to be JSON, and written exactly as typed" : hint}>
      <textarea name=${name} rows=${rows} class=${rows === "1" ? "low" : ""} autofocus=${autofocus} spellcheck=${false} value=${text} onInput=${(event) => onChange(event.target.value, as)}></textarea>
    <//>`}
  </div>`;
}

function Headers({ headers, wrong, onChange }) {
  const add = useRef(null);
  const replace = (index, changed) => onChange(headers.map((header, n) => (n === index ? { ...header, ...changed } : header)));
  const remove = (index) => {
    onChange(headers.filter((_, n) => n !== index));
    add.current.focus();
  };
  return html`<fieldset class="choices"><legend class="label">Headers</legend>
    ${headers.map((header, index) => html`<${Header} key=${index} number=${index + 1} header=${header} wrong=${wrong[`header ${index}`]}
      onChange=${(changed) => replace(index, changed)} onRemove=${() => remove(index)} />`)}
    <button class="button" type="button" ref=${add} disabled=${headers.length >= MAX_HEADERS}
      onClick=${() => onChange([...headers, { name: "", value: "", as: "text", isNew: true }])}>Add a header</button>
  </fieldset>`;
}

function Header({ number, header, wrong, onChange, onRemove }) {
  const name = useRef(null);
  useEffect(() => {
    if (header.isNew) name.current.focus();
  }, []);
  const of = (what) => `${what} of header ${number}`;
  return html`<div class="header-row">
    <input ref=${name} name="header-name" placeholder="name" aria-label=${of("Name")} autocomplete="off" spellcheck=${false} value=${header.name} onInput=${(event) => onChange({ name: event.target.value })} />
    <input name="header-value" placeholder="value" aria-label=${of("Value")} autocomplete="off" spellcheck=${false} value=${header.value} onInput=${(event) => onChange({ value: event.target.value })} />
    <select name="header-format" aria-label=${of("Format")} value=${header.as} onChange=${(event) => onChange({ as: event.target.value })}>
      <option value="text">text</option><option value="base64">base64</option>
    </select>
    <button class="button" type="button" aria-label=${`Remove header ${number}`} onClick=${onRemove}>Remove</button>
    ${wrong && html`<span class="wrong small" role="alert">${wrong}</span>`}
  </div>`;
}

function Done({ topic, of: { kind, partition, offset } }) {
  if (kind === "sent") return html`<p class="done">The record was sent to ${topic}/${partition}. With acks=none no offset is returned, and it may be lost.</p>`;
  return html`<p class="done">The record is in <strong>${topic}/${partition}</strong> at offset <strong>${offset}</strong>. <a href=${recordLink(topic, { partition, offset })}>Show the record</a></p>`;
}

/** An outcome that is not known is no invitation to write the record twice. */
function InDoubt({ topic, partition, problem, mayRepeat, onChange }) {
  const shown = {
    title: "The outcome is not known",
    detail: `The record may be written, at most once. ${[problem.title, problem.detail].filter(Boolean).join(": ")}`,
    errors: problem.errors,
    fix: "Check the newest records before you produce it again.",
  };
  return html`<${ProblemNote} problem=${shown} />
    <p><a href=${href(["records"], { topic, partition })} target="_blank" rel="noopener">Show the newest records in a new tab</a></p>
    <label class="check"><input type="checkbox" name="repeat" checked=${mayRepeat} onChange=${(event) => onChange(event.target.checked)} />Produce it again, even if that writes it twice</label>`;
}

// Every key of a topic's configuration as a field. The gateway judges values; here are words.
import { html } from "../html.js";
import { Field } from "./basics.js";

const KEYS = [
  { key: "min_insync_replicas", hint: "Replicas in sync that acks=all needs; default min(2, replicas)", type: "number" },
  { key: "durability", hint: "What a replica has done before a record counts there", choices: ["replicated", "synced"] },
  { key: "retention_ms", hint: "Milliseconds; -1: for ever", type: "number" },
  { key: "retention_bytes", hint: "Bytes of a partition; -1: without bound", type: "number" },
  { key: "segment_bytes", hint: "A segment is rolled beyond this", type: "number" },
  { key: "segment_ms", hint: "A segment is rolled when it is older", type: "number" },
  { key: "max_batch_bytes", hint: "The largest batch, as it travels", type: "number" },
  { key: "max_batch_records", hint: "Most records of a batch", type: "number" },
  { key: "timestamp_type", hint: "A record's timestamp: its producer's, or of its append", choices: ["create", "append"] },
  { key: "timestamp_max_ahead_ms", hint: "How far a timestamp may lie ahead of the leader's clock; -1: however far", type: "number" },
  { key: "recovery", hint: "When all replicas in sync have lost data", choices: ["balanced", "manual"] },
  { key: "unclean_leader_election", hint: "May any live replica lead, at the price of records", choices: ["false", "true"] },
];

/** `values`: by key, "" where the default is to hold; `defaults`: what that is. */
export function ConfigFields({ values, onChange, defaults = {} }) {
  const set = (key) => (event) => onChange({ ...values, [key]: event.target.value });
  return html`<div class="fields" style=${{ marginTop: "12px" }}>${KEYS.map(
    ({ key, hint, type, choices }) => html`<${Field} key=${key} label=${html`<code>${key}</code>`} hint=${hint}>
      ${choices
        ? html`<select name=${key} value=${values[key] ?? ""} onChange=${set(key)}>
            <option value="">default${defaults[key] ? ` (${defaults[key]})` : ""}</option>
            ${choices.map((choice) => html`<option value=${choice}>${choice}</option>`)}
          </select>`
        : html`<input name=${key} type=${type} value=${values[key] ?? ""} onInput=${set(key)}
            placeholder=${defaults[key] ? `default: ${defaults[key]}` : "default"} />`}
    <//>`,
  )}</div>`;
}

export function setValues(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
}

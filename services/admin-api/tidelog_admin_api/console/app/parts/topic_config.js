// All keys of a topic's configuration as fields. The gateway checks values.
import { html } from "../html.js";
import { Field } from "./basics.js";

const KEYS = [
  { key: "min_insync_replicas", hint: "In-sync replicas that acks=all needs; default: min(2, replicas)", type: "number" },
  { key: "durability", hint: "replicated: a record counts once replicas have it; synced: once they have synced it to disk", choices: ["replicated", "synced"] },
  { key: "retention_ms", hint: "Milliseconds; -1: unlimited", type: "number" },
  { key: "retention_bytes", hint: "Bytes of a partition; -1: unlimited", type: "number" },
  { key: "segment_bytes", hint: "Size in bytes at which a segment is rolled", type: "number" },
  { key: "segment_ms", hint: "Age in milliseconds at which a segment is rolled", type: "number" },
  { key: "max_batch_bytes", hint: "Maximum size of a batch in bytes, as it is sent", type: "number" },
  { key: "max_batch_records", hint: "Maximum number of records in a batch", type: "number" },
  { key: "timestamp_type", hint: "Timestamp of a record: set by the producer, or at the append", choices: ["create", "append"] },
  { key: "timestamp_max_ahead_ms", hint: "Maximum milliseconds of a timestamp ahead of the leader's clock; -1: unlimited", type: "number" },
  { key: "recovery", hint: "Recovery after all in-sync replicas have lost data", choices: ["balanced", "manual"] },
  { key: "unclean_leader_election", hint: "Whether any live replica may lead, even if records are lost", choices: ["false", "true"] },
];

/** `values`: values by key; "": the default; `defaults`: defaults by key. */
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

// A partition without a leader: its surviving replicas, what each choice would lose, and the choice
// with its confirmation.
import { html, useState } from "../html.js";
import { change, get } from "../api.js";
import { brokers, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { Act } from "./act.js";
import { Dialog, Empty, Stale, Waiting, notify } from "./basics.js";
import { Table } from "./table.js";

const EVERY_MS = 3_000;
// Timeout for the descriptions of logs.
const DESCRIBE_MS = 5_000;

export function RecoverAct({ topic, partition, onClose }) {
  const known = usePolled((signal) => get("recovery", { topic, partition, timeout_ms: DESCRIBE_MS }, signal), `${topic}/${partition}`, EVERY_MS);
  const title = `Recover ${topic}/${partition}`;
  if (!known.data) return html`<${Dialog} title=${title} onClose=${onClose}><${Waiting} of=${known} /><//>`;
  const found = known.data.items.find((item) => item.topic === topic && item.partition === partition);
  if (!found) return html`<${Dialog} title=${title} onClose=${onClose}><${Empty} title="The partition has a leader." /><//>`;
  return html`<${Choose} title=${title} found=${found} known=${known} onClose=${onClose} />`;
}

function Choose({ title, found, known, onClose }) {
  const [chosen, setChosen] = useState("");
  const body = {
    topic: found.topic,
    choices: [{ partition: found.partition, broker_id: Number(chosen), expected_revision: found.revision }],
  };
  const send = (query, more = {}) => change("POST", "recovery", { ...body, ...more }, { query });
  const survivor = found.survivors.find((one) => String(one.broker_id) === chosen);
  const columns = [
    { name: "Broker", width: "90px", show: (s) => html`<label class="check"><input type="radio" name="broker" value=${s.broker_id} aria-label=${`Broker ${s.broker_id}`}
      disabled=${!s.described} checked=${chosen === String(s.broker_id)} onChange=${() => setChosen(String(s.broker_id))} />${s.broker_id}</label>` },
    { name: "Last epoch", width: "100px", num: true, show: (s) => (s.described ? number(s.last_epoch) : "–") },
    { name: "Log", num: true, show: (s) => (s.described ? `${number(s.log_start_offset)} to ${number(s.log_end_offset)}` : html`<span title=${s.problem}>${s.problem}</span>`) },
    { name: "Would lose", width: "150px", num: true, show: (s) => (s.lost_records == null ? "not known" : plural(s.lost_records, "record")) },
  ];
  const form = html`<${Stale} of=${known} /><p>${found.waits_for ? `The partition waits for ${found.waits_for}.` : ""} Last known to hold every committed
      record: ${brokers(found.last_known)}. If one of them returns, no record is lost.</p>
    <fieldset class="choices"><legend class="label">New leader, even if records are lost</legend>
      <${Table} label="Surviving replicas" columns=${columns} rows=${found.survivors} rowKey=${(s) => s.broker_id} /></fieldset>`;
  return html`<${Act} title=${title} verb="Elect it and lose these records" danger confirm=${found.topic} form=${form}
    ready=${chosen !== ""} subject=${chosen} plan=${() => send({ dry_run: true, timeout_ms: DESCRIBE_MS })}
    show=${() => html`<p class="warned">Broker ${chosen} would lead; ${survivor?.lost_records == null
      ? "the number of lost records is not known"
      : html`<strong>${plural(survivor.lost_records, "record")}</strong> of other replicas would be lost`}.</p>`}
    run=${() => send({}, { confirm: found.topic })}
    done=${(answer) => notify(answer.results.find((result) => result.error)?.error.message ?? `${found.topic}/${found.partition} has a leader.`)}
    onClose=${onClose} />`;
}

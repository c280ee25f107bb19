// The scrub of brokers: its progress, and the start of a new pass.
import { html, useState } from "../html.js";
import { all, change } from "../api.js";
import { NONE, ago, bytes, exactTime, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { Act } from "./act.js";
import { Age, Panel, Progress, State, Waiting, notify } from "./basics.js";
import { BrokerChoice, turned } from "./broker_choice.js";
import { Table } from "./table.js";

// Each request queries all brokers.
const EVERY_MS = 5_000;

/** [tone, word] of the pass of a broker; `status` null: the broker did not answer. */
export function passOf(status) {
  if (!status) return ["warn", "no answer"];
  if (status.running) return ["note", status.full_rate ? "full rate" : "running"];
  return status.enabled ? ["", "waiting"] : ["", "off"];
}

/** [tone, word] of the damage that all passes of a broker have found. */
export function damageOf(status) {
  if (!status) return ["", NONE];
  return [status.damage_found > 0 ? "bad" : "ok", number(status.damage_found)];
}

/** [tone, word] of the offset ranges in which replicas have different committed records now. */
export function divergedOf(status) {
  if (!status) return ["", NONE];
  return [status.diverged_ranges > 0 ? "bad" : "ok", number(status.diverged_ranges)];
}

export function ScrubPanel({ onAct }) {
  const known = usePolled((signal) => all("brokers/scrub", {}, signal), "scrub", EVERY_MS);
  return html`<${Panel} title="Scrub" flush beside=${html`<span class="faint small">every batch on the disk is checked</span><${Age} of=${known} />`}
    acts=${html`<button class="button" disabled=${!known.data} onClick=${onAct}>Scrub now…</button>`}>
    ${known.data ? html`<${ScrubTable} label="Scrub" scrubs=${known.data} />` : html`<${Waiting} of=${known} />`}
  <//>`;
}

function ScrubTable({ label, scrubs }) {
  const state = ([tone, word], error) => html`<span title=${error?.message}><${State} tone=${tone}>${word}<//></span>`;
  const columns = [
    { name: "Broker", width: "84px", value: (s) => s.broker_id },
    { name: "Pass", width: "124px", value: (s) => passOf(s.status)[1], show: (s) => state(passOf(s.status), s.error) },
    { name: "Checked in it", show: (s) => html`<${Checked} of=${s} />` },
    { name: "Last completed pass", value: (s) => s.status?.last_pass_ended_ms ?? 0, show: (s) => html`<${LastPass} status=${s.status} />` },
    { name: "Damaged batches", width: "130px", num: true, value: (s) => s.status?.damage_found ?? -1, show: (s) => state(damageOf(s.status)) },
    { name: "Diverged ranges", width: "130px", num: true, value: (s) => s.status?.diverged_ranges ?? -1, show: (s) => state(divergedOf(s.status)) },
  ];
  return html`<${Table} label=${label} columns=${columns} rows=${scrubs} rowKey=${(s) => s.broker_id} sortedBy="Broker" empty="No broker is running." />`;
}

function Checked({ of: { broker_id: id, status, error } }) {
  if (error) return html`<span class="dim" title=${error.message}>${error.message}</span>`;
  if (!status?.running) return NONE;
  return html`<div class="row" style=${{ flexWrap: "nowrap" }}><div style=${{ flex: "1", minWidth: "40px" }}><${Progress} label=${`Scrub of broker ${id}`} part=${status.pass_bytes} whole=${status.total_bytes} /></div>
    <span class="small dim nowrap">${bytes(status.pass_bytes)} of ${bytes(status.total_bytes)}</span></div>`;
}

function LastPass({ status }) {
  if (!status) return NONE;
  if (!status.last_pass_ended_ms) return "never";
  return html`<time title=${exactTime(status.last_pass_ended_ms)}>${ago(status.last_pass_ended_ms)}</time>
    <span class="faint small"> ${bytes(status.last_pass_bytes)}</span>`;
}

export function ScrubAct({ brokers, onClose }) {
  const running = brokers.filter((one) => one.status !== "gone");
  const [ids, setIds] = useState(running.map((one) => one.broker_id));
  const [fullRate, setFullRate] = useState(false);
  const send = (query) => change("POST", "brokers/scrub", { broker_ids: ids, full_rate: fullRate }, { query });
  const form = html`<${BrokerChoice} legend="Brokers that check every batch on their disks:" brokers=${running} chosen=${ids} onChange=${(id) => setIds(turned(ids, id))} />
    <label class="choice"><input type="checkbox" name="full-rate" checked=${fullRate} onChange=${(event) => setFullRate(event.target.checked)} />
      <span>At full rate</span><span class="faint small">without pauses, as fast as the disk reads</span></label>`;
  return html`<${Act} title="Scrub" verb="Scrub now" form=${form} ready=${ids.length > 0} subject=${`${ids.join(",")} ${fullRate}`}
    plan=${() => send({ dry_run: true })} show=${(plan) => html`<${Plan} plan=${plan} fullRate=${fullRate} />`}
    run=${() => send({})} done=${(answer) => notify(begun(answer.items))} onClose=${onClose} />`;
}

function Plan({ plan: { items }, fullRate }) {
  const replaced = items.filter((one) => one.status?.running).map((one) => one.broker_id);
  return html`<p>A new pass would begin ${fullRate ? "at full rate" : "at the configured rate"} on ${plural(items.length, "broker")}. Damage
      is repaired from other replicas.</p>
    ${replaced.length > 0 && html`<p class="warned">It would replace the pass in progress on ${replaced.length === 1 ? "broker" : "brokers"} ${replaced.join(", ")}.</p>`}
    <${ScrubTable} label="Present state" scrubs=${items} />`;
}

function begun(items) {
  const silent = items.filter((one) => one.error);
  const text = `A new pass has begun on ${plural(items.length - silent.length, "broker")}.`;
  return silent.length > 0 ? `${text} ${plural(silent.length, "broker")} did not answer: ${silent[0].error.message}` : text;
}

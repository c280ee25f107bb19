// Brokers as a list to choose from, with their states, racks and loads.
import { html } from "../html.js";
import { all, at, get } from "../api.js";
import { bytes, number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { statusOf } from "../verdict.js";
import { State } from "./basics.js";

const EVERY_MS = 2_000;
// The processes of brokers change rarely, and each broker is queried.
const PROCESSES_EVERY_MS = 10_000;
const MAX_ASKED = 50;

/** The result of `usePolled` for the list of brokers. */
export function useBrokers() {
  return usePolled((signal) => all("brokers", {}, signal), "brokers", EVERY_MS);
}

/** Processes by broker id; null: the broker does not answer. `brokers`: nullish until loaded. */
export function useProcesses(brokers) {
  const ids = (brokers ?? []).map((broker) => broker.broker_id).slice(0, MAX_ASKED).join(",");
  return usePolled((signal) => readProcesses(ids, signal), ids, PROCESSES_EVERY_MS).data ?? {};
}

async function readProcesses(ids, signal) {
  const asked = ids ? ids.split(",") : [];
  const answers = await Promise.allSettled(asked.map((id) => get(at("brokers", id), {}, signal)));
  return Object.fromEntries(asked.map((id, n) => [id, answers[n].value?.process ?? null]));
}

/**
 * `chosen`: ids; `onChange(id)`: a choice is made or undone; `isSingle`: only one can be chosen.
 * `blockedOf(broker)`: why it cannot be chosen; `noteOf(broker)`: what to consider. Both are texts, empty
 * for none.
 */
export function BrokerChoice({ legend, brokers, chosen, onChange, isSingle = false, blockedOf = () => "", noteOf = () => "" }) {
  const processes = useProcesses(brokers);
  return html`<fieldset class="choices"><legend class="label">${legend}</legend>
    <div class="brokers">${brokers.map((broker) => html`<${Choice} key=${broker.broker_id} broker=${broker} isSingle=${isSingle}
      isChosen=${chosen.includes(broker.broker_id)} blocked=${blockedOf(broker)} note=${noteOf(broker)}
      process=${processes[broker.broker_id]} onChange=${() => onChange(broker.broker_id)} />`)}</div>
  </fieldset>`;
}

function Choice({ broker, isSingle, isChosen, blocked, note, process, onChange }) {
  const [tone, word] = statusOf(broker);
  // One that became impossible after it was chosen can still be removed.
  const isDisabled = blocked !== "" && !isChosen;
  return html`<label class="choice ${isDisabled ? "off" : ""}">
    <input type=${isSingle ? "radio" : "checkbox"} name="broker" value=${broker.broker_id} checked=${isChosen} disabled=${isDisabled} onChange=${onChange} />
    <span>Broker ${broker.broker_id}</span>
    <${State} tone=${tone}>${word}<//>
    <span class="dim small">${loadWords(broker, process)}</span>
    ${(blocked || note) && html`<span class="caution small">${blocked || note}</span>`}
  </label>`;
}

function loadWords(broker, process) {
  return [
    broker.rack && `rack ${broker.rack}`,
    plural(broker.replicas, "replica"),
    `leads ${number(broker.leaders)}`,
    process?.disk_free_bytes != null && `${bytes(process.disk_free_bytes)} free`,
  ].filter(Boolean).join(" · ");
}

/** `ids` with a broker added or removed, in ascending order. */
export function turned(ids, id) {
  return ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id].sort((a, b) => a - b);
}

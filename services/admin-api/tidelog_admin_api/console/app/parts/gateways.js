// The gateways of the cluster, which controllers know from their announcements.
import { html } from "../html.js";
import { all } from "../api.js";
import { NONE, duration, exactTime, number } from "../format.js";
import { usePolled } from "../live.js";
import { Age, Panel, State, Waiting } from "./basics.js";
import { Table } from "./table.js";

// Each request queries all services.
const EVERY_MS = 5_000;
const TONES = { alive: "ok", silent: "bad", stopped: "" };

export function GatewaysPanel() {
  const known = usePolled((signal) => all("gateways", {}, signal), "gateways", EVERY_MS);
  return html`<${Panel} title="Gateways" flush beside=${html`<${Age} of=${known} />`}>
    ${known.data ? html`<${Gateways} gateways=${known.data} />` : html`<${Waiting} of=${known} />`}
  <//>`;
}

/** The client with the latest rejection by a limit of the gateway, and the number of others. */
export function limitedText(clients) {
  const [last] = clients;
  if (!last) return NONE;
  const others = clients.length > 1 ? ` and ${number(clients.length - 1)} more` : "";
  return `${last.address} at ${last.limit} (${number(last.value)})${others}`;
}

/** The resources that are short in a gateway, such as "open_files 1,020 of 1,024". */
export function shortText(pressures) {
  return pressures.map((p) => `${p.resource} ${number(p.used)} of ${number(p.limit)}`).join(", ") || NONE;
}

function Gateways({ gateways }) {
  const columns = [
    { name: "Address", value: (g) => g.address },
    { name: "Host", value: (g) => g.host, show: (g) => html`${g.host} <span class="faint small">process ${g.pid}</span>` },
    { name: "State", width: "110px", value: (g) => g.state, show: (g) => html`<${State} tone=${TONES[g.state] ?? ""}>${g.state}<//>` },
    { name: "Last announcement", width: "140px", num: true, value: (g) => g.last_heard_ms, show: (g) => `${duration(g.last_heard_ms)} ago` },
    { name: "Started", width: "180px", value: (g) => g.started_at_ms, show: (g) => exactTime(g.started_at_ms) },
    { name: "Release", width: "90px", value: (g) => g.version },
    { name: "Clients at a limit", value: (g) => g.limited_clients.length, show: (g) => limitedText(g.limited_clients) },
    { name: "Short resources", value: (g) => g.pressures.length, show: (g) => shortText(g.pressures) },
  ];
  return html`<${Table} label="Gateways" columns=${columns} rows=${gateways} rowKey=${(g) => `${g.address} ${g.host}`} sortedBy="Address" empty="No gateway has sent an announcement." />`;
}

// The releases of brokers and controllers, and the feature level of the cluster.
import { html } from "../html.js";
import { get } from "../api.js";
import { NONE } from "../format.js";
import { usePolled } from "../live.js";
import { Age, Panel, Waiting } from "./basics.js";
import { Table } from "./table.js";

// They change with an upgrade only.
const EVERY_MS = 10_000;

export function ReleasesPanel() {
  const known = usePolled((signal) => get("cluster/feature-level", {}, signal), "feature-level", EVERY_MS);
  return html`<${Panel} title="Releases" flush beside=${html`${known.data && html`<span class="faint small">${levelText(known.data)}</span>`}<${Age} of=${known} />`}>
    ${known.data ? html`<${Processes} processes=${known.data.processes} />` : html`<${Waiting} of=${known} />`}
  <//>`;
}

/** The feature level, and whether it can be raised. */
export function levelText({ level, raisable_level: raisable }) {
  if (raisable <= level) return `feature level ${level}`;
  return `feature level ${level}; all processes support ${raisable}: tidelog cluster upgrade raises it`;
}

/** The levels that a process supports, such as "1" or "1 to 2". */
export function levelsText({ oldest_level: oldest, newest_level: newest }) {
  return oldest === newest ? `${newest}` : `${oldest} to ${newest}`;
}

function Processes({ processes }) {
  const columns = [
    { name: "Process", width: "130px", value: (p) => `${p.role} ${p.id}` },
    { name: "Release", width: "110px", value: (p) => p.version, show: (p) => p.version || NONE },
    { name: "Feature levels", width: "130px", value: (p) => p.newest_level, show: levelsText },
    { name: "Address", value: (p) => p.address },
  ];
  return html`<${Table} label="Releases" columns=${columns} rows=${processes} rowKey=${(p) => `${p.role} ${p.id}`} sortedBy="Process" empty="No process is registered." />`;
}

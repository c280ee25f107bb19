// The planned placement of the partitions of a topic.
import { html } from "../html.js";
import { brokers, plural } from "../format.js";
import { Table } from "./table.js";

const MAX_SHOWN = 100;

/** `assignment`: the brokers of each partition, the preferred leader first; `first`: the number of
 * the first partition. */
export function Placement({ topic, assignment, first = 0 }) {
  const rows = assignment.slice(0, MAX_SHOWN).map((replicas, at) => ({ partition: first + at, replicas }));
  const columns = [
    { name: "Partition", value: (row) => `${topic}/${row.partition}` },
    { name: "Preferred leader", width: "150px", show: (row) => html`Broker ${row.replicas[0]}` },
    { name: "Replicas on brokers", width: "200px", show: (row) => brokers(row.replicas) },
  ];
  return html`<p><strong>${plural(assignment.length, "partition")}</strong> would be placed like this:</p>
    <${Table} label="Planned placement" columns=${columns} rows=${rows} rowKey=${(row) => row.partition} />
    ${assignment.length > rows.length && html`<p class="faint small">The first ${rows.length} are shown.</p>`}`;
}

// A field for one partition of a topic, or none.
import { html } from "../html.js";

// Topics with more partitions have a number field, since a list of thousands is slow.
const MAX_OPTIONS = 100;

/** `none`: the word for no partition; `on`: its listeners, such as `onChange`. */
export function PartitionChoice({ count, chosen, none = "all", ...on }) {
  if (count > MAX_OPTIONS) {
    return html`<input class="shorter" name="partition" type="number" min="0" max=${count - 1} placeholder=${none} value=${chosen} ...${on} />`;
  }
  return html`<select name="partition" value=${chosen} ...${on}>
    <option value="">${none}</option>
    ${Array.from({ length: count }, (_, one) => html`<option key=${one} value=${one}>${one}</option>`)}
  </select>`;
}

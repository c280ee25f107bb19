// The range of offsets and times that a page of records has, and the pages around it.
import { html } from "../html.js";
import { clock, number, plural } from "../format.js";
import { go } from "../router.js";

/**
 * `around`: the result of `neighbours`, or null while there is no answer. The buttons stay where they
 * are while a page is loaded, so that they keep the focus.
 */
export function Pager({ around, records, asked }) {
  const to = (from, at) => go(["records"], { ...asked, from, offset: "", at: "", ...at });
  const move = (from, offsets) => offsets && to(from, placeOf(offsets));
  return html`<div class="toolbar plain small" role="group" aria-label="Pages of records">
    <button class="button compact" disabled=${around !== null && !around.older} onClick=${() => move("before", around?.older)}>Older</button>
    <button class="button compact" disabled=${around !== null && !around.newer} onClick=${() => move("offset", around?.newer)}>Newer</button>
    <button class="button quiet compact" onClick=${() => to("newest", {})}>Newest</button>
    <span role="status">${around && rangeWords(around.pages, records)}</span>
  </div>`;
}

/** The address of offsets by partition: a single one can be edited. */
function placeOf(offsets) {
  const [[partition, offset], ...others] = Object.entries(offsets);
  return others.length ? { at: Object.entries(offsets).map((one) => one.join(":")).join(",") } : { offset: String(offset), partition };
}

/** The opposite of `placeOf`, for several partitions. */
export function offsetsOf(at) {
  const pairs = at.split(",").map((pair) => pair.split(":").map(Number));
  return Object.fromEntries(pairs.filter(([partition, offset]) => Number.isInteger(partition) && Number.isInteger(offset)));
}

/**
 * The offsets from which the pages around a page are read. `pages`: the answers by partition, each with
 * more records than are shown; `shown`: records of all partitions; `isBackwards`: whether the oldest
 * records were left out, and not the newest. Null: there are no older or newer records.
 */
export function neighbours(pages, shown, isBackwards) {
  const older = {};
  const newer = {};
  for (const [partition, page] of Object.entries(pages)) {
    const offsets = shown.filter((record) => record.partition === Number(partition)).map((record) => record.offset);
    const isCut = offsets.length < page.items.length;
    const first = offsets.reduce((a, b) => Math.min(a, b), page.next_offset);
    const last = offsets.reduce((a, b) => Math.max(a, b), page.first_offset - 1);
    older[partition] = isBackwards && isCut ? first : page.first_offset;
    newer[partition] = !isBackwards && isCut ? last + 1 : page.next_offset;
  }
  const all = Object.entries(pages);
  return {
    pages,
    older: all.some(([p, page]) => older[p] > page.log_start_offset) ? older : null,
    newer: all.some(([p, page]) => newer[p] < page.end_offset) ? newer : null,
  };
}

function rangeWords(pages, records) {
  const all = Object.values(pages);
  const times = timeWords(records);
  if (all.length > 1) return `${plural(records.length, "record")} of ${plural(all.length, "partition")}${times}.`;
  const { first_offset: first, next_offset: next, log_start_offset: start, end_offset: end } = all[0];
  if (start >= end) return "The partition has no records.";
  const whole = `of ${number(start)} to ${number(end - 1)} in the partition`;
  return first < next ? `Offsets ${number(first)} to ${number(next - 1)} ${whole}${times}.` : `No offsets ${whole}.`;
}

/** The times of records, which need not be in the order of offsets. */
function timeWords(records) {
  if (!records.length) return "";
  const times = records.map((record) => record.timestamp_ms);
  return `, from ${clock(times.reduce((a, b) => Math.min(a, b)))} to ${clock(times.reduce((a, b) => Math.max(a, b)))}`;
}

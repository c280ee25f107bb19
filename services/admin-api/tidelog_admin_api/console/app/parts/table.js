// Tables for thousands of rows: only visible rows are in the document.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { Empty } from "./basics.js";

// As --row in tokens.css and phone.css.
const ROW_PX = 36;
const PHONE_ROW_PX = 44;
const phone = matchMedia("(max-width: 820px)");
// Rows above and below the visible ones, so that quick scrolling shows no gap.
const MARGIN_ROWS = 12;
// Up to this number all rows are drawn, and the page scrolls instead of the table.
const ALL_ROWS = 60;
// Minimum width of a column without a width. Below it, the table scrolls.
const LEAST_PX = 110;
const PHONE_LEAST_PX = 140;

/**
 * `columns`: [{name, width, num, value(row), show(row)}]: rows are sorted by `value`, and cells show
 * `show`. `rowKey(row)` is unique.
 */
export function Table({ label, columns, rows, rowKey, sortedBy = "", empty = "Nothing" }) {
  const [sort, setSort] = useState({ name: sortedBy, down: false });
  const sorted = useMemo(() => inOrder(rows, columns, sort), [rows, sort, columns.length]);
  const isAll = sorted.length <= ALL_ROWS;
  const scroller = useRef(null);
  const [first, count] = useWindow(scroller, sorted.length, isAll);
  const shown = sorted.slice(first, first + count);
  const isWide = useIsWide(scroller, rows.length > 0);

  if (!rows.length) return html`<${Empty} title=${empty} />`;
  return html`<div class="scroller ${isAll ? "free" : ""} ${isWide ? "wide" : ""}" ref=${scroller} role="group"
    aria-label=${label} tabindex=${isAll && !isWide ? undefined : 0}>
    <table aria-label=${label} aria-rowcount=${sorted.length + 1} style=${{ minWidth: `${leastWidth(columns)}px` }}>
      <colgroup>${columns.map(({ width }) => html`<col style=${{ width: width ?? "auto" }} />`)}</colgroup>
      <thead><tr>${columns.map(
        (column) => html`<${Heading} key=${column.name} column=${column} sort=${sort} onSort=${setSort} />`,
      )}</tr></thead>
      <tbody>
        ${first > 0 && html`<${Spacer} key="above" rows=${first} columns=${columns.length} />`}
        ${shown.map((row, at) => html`<${Row} key=${rowKey(row)} row=${row} columns=${columns}
          index=${first + at + 2} />`)}
        ${first + count < sorted.length &&
        html`<${Spacer} key="below" rows=${sorted.length - first - count} columns=${columns.length} />`}
      </tbody>
    </table>
  </div>`;
}

/** Columns without a width share what those in px and percent leave. */
function leastWidth(columns) {
  const sumOf = (unit) => columns.reduce((sum, { width }) => sum + (width?.endsWith(unit) ? Number.parseInt(width, 10) : 0), 0);
  const others = columns.filter(({ width }) => width === undefined).length;
  return Math.ceil((sumOf("px") + others * (phone.matches ? PHONE_LEAST_PX : LEAST_PX)) / (1 - sumOf("%") / 100));
}

function Heading({ column, sort, onSort }) {
  const isSorted = sort.name === column.name;
  const direction = sort.down ? "descending" : "ascending";
  const turn = () => onSort({ name: column.name, down: isSorted && !sort.down });
  return html`<th scope="col" class=${column.num ? "num" : ""} title=${column.name} aria-sort=${isSorted ? direction : undefined}>
    ${column.value
      ? html`<button type="button" onClick=${turn}>${column.name}${isSorted ? (sort.down ? " ↓" : " ↑") : ""}</button>`
      : column.name}
  </th>`;
}

function Row({ row, columns, index }) {
  return html`<tr aria-rowindex=${index}>
    ${columns.map((column) => html`<${Cell} key=${column.name} num=${column.num} content=${(column.show ?? column.value)(row)} />`)}
  </tr>`;
}

/** Where there is no room for a text, its title has all of it. */
function Cell({ num, content }) {
  return html`<td class=${num ? "num" : ""} title=${typeof content === "string" ? content : undefined}>${content}</td>`;
}

function Spacer({ rows, columns }) {
  return html`<tr class="spacer" aria-hidden="true">
    <td colspan=${columns} style=${{ height: `${rows * rowPx()}px` }}></td>
  </tr>`;
}

function rowPx() {
  return phone.matches ? PHONE_ROW_PX : ROW_PX;
}

/** Whether the table is wider than its place. Then the keyboard has to reach it, to scroll it. */
function useIsWide(scroller, isShown) {
  const [isWide, setWide] = useState(false);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const resized = new ResizeObserver(() => setWide(element.scrollWidth > element.clientWidth));
    resized.observe(element);
    resized.observe(element.firstElementChild);
    return () => resized.disconnect();
  }, [isShown]);
  return isWide;
}

function useWindow(scroller, total, isAll) {
  const [range, setRange] = useState([0, ALL_ROWS]);
  useEffect(() => {
    const element = scroller.current;
    if (isAll || !element) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const first = Math.max(0, Math.floor(element.scrollTop / rowPx()) - MARGIN_ROWS);
      const count = Math.ceil(element.clientHeight / rowPx()) + 2 * MARGIN_ROWS;
      setRange((before) => (before[0] === first && before[1] === count ? before : [first, count]));
    };
    const later = () => (frame ||= requestAnimationFrame(measure));
    measure();
    element.addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      element.removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [isAll, total]);
  if (isAll) return [0, total];
  const first = Math.min(range[0], Math.max(0, total - range[1]));
  return [first, Math.min(range[1], total - first)];
}

function inOrder(rows, columns, { name, down }) {
  const by = columns.find((column) => column.name === name)?.value;
  if (!by) return rows;
  const sorted = rows.map((row) => [by(row), row]).sort(([a], [b]) => compare(a, b));
  return (down ? sorted.reverse() : sorted).map(([, row]) => row);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return COLLATOR.compare(String(a ?? ""), String(b ?? ""));
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

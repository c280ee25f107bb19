// Lines over time, drawn by uPlot in the colours of the console.
import { html, useEffect, useRef } from "../html.js";
import uPlot from "../../vendor/uPlot.js";
import { NONE, byteRate, bytes, compact, number, perSecond } from "../format.js";
import { useStore } from "../store.js";
import { colour, colours } from "../theme.js";

const HEIGHT_PX = 132;
// A chart that is alone in its panel.
export const TALL_PX = 216;
const LEAST_WIDTH_PX = 180;
const LONG_SECONDS = 600;
// Charts with the same key show the same time under the cursor.
const CURSOR = "history";
export const LINE_COLOURS = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `chart-${n}`);

/** How values are shown in the legend and on the axis, and the highest value of an empty axis. */
export const COUNT = { show: number, tick: compact, least: 5 };
export const PER_SECOND = { show: perSecond, tick: compact, least: 5 };
export const BYTES = { show: bytes, tick: bytes, least: 1024, steps: Array.from({ length: 51 }, (_, n) => 2 ** n) };
export const BYTE_RATE = { ...BYTES, show: byteRate };

/**
 * `times`: seconds since 1970, ascending; `lines`: [{name, colour, values}]; null values are gaps.
 * `label`: the description for screen readers; `span`: the first and last shown time; `height`: in
 * pixels.
 */
export function LineChart({ label, times, lines, unit = COUNT, span, height = HEIGHT_PX }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shown = useRef(span);
  shown.current = span;
  const painted = useStore(colours);
  const shape = lines.map((line) => `${line.name} ${line.colour}`).join("|");

  useEffect(() => {
    const made = new uPlot(options(lines, unit, [widthOf(place.current.clientWidth), height], shown), data(times, lines), place.current);
    plot.current = made;
    showNewest(made);
    const resized = new ResizeObserver(([entry]) => made.setSize({ width: widthOf(entry.contentRect.width), height }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, painted]);

  useEffect(() => {
    if (!plot.current) return;
    plot.current.setData(data(times, lines));
    showNewest(plot.current);
  }, [times, lines]);

  const latest = lines.map((line) => `${line.name}: ${unit.show(line.values.at(-1))}`).join(", ");
  return html`<div class="chart" ref=${place} role="img" aria-label=${`${label}. Now: ${latest}`}></div>`;
}

/** Shows the newest values in the legend unless the cursor selects others. uPlot clears the legend in
 * a microtask. */
function showNewest(plot) {
  queueMicrotask(() => {
    if (!(plot.cursor.left >= 0)) plot.setLegend({ idx: plot.data[0].length - 1 });
  });
}

function data(times, lines) {
  return [times, ...lines.map((line) => line.values)];
}

function widthOf(width) {
  return Math.max(LEAST_WIDTH_PX, Math.floor(width));
}

/** The points without a neighbour, which have no line. */
function alone(plot, series) {
  const values = plot.data[series];
  const found = [];
  for (let n = 0; n < values.length; n += 1) {
    if (values[n] != null && values[n - 1] == null && values[n + 1] == null) found.push(n);
  }
  return found.length ? found : null;
}

function options(lines, unit, [width, height], shown) {
  const axis = {
    stroke: colour("text-3"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
  };
  const isLong = () => shown.current[1] - shown.current[0] > LONG_SECONDS;
  const timeOf = (seconds) => uPlot.fmtDate(isLong() ? "{HH}:{mm}" : "{HH}:{mm}:{ss}")(new Date(seconds * 1000));
  return {
    width,
    height,
    padding: [6, 14, 0, 0],
    cursor: { y: false, points: { size: 6 }, sync: { key: CURSOR } },
    scales: {
      x: { range: () => shown.current },
      y: { range: (_, low, high) => [0, Math.max(unit.least, (high ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, space: 62, size: 22, values: (_, ticks) => ticks.map(timeOf) },
      {
        ...axis,
        size: 54,
        gap: 4,
        space: 30,
        ...(unit.steps ? { incrs: unit.steps } : {}),
        values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? unit.tick(tick) : "")),
      },
    ],
    series: [
      { label: "Time", value: "{HH}:{mm}:{ss}" },
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.colour),
        width: 1.6,
        points: { show: false, size: 4, fill: colour(line.colour), filter: alone },
        value: (_, value) => (value == null ? NONE : unit.show(value)),
      })),
    ],
  };
}

// Lines over time, drawn by uPlot in the colours of the console.
import { html, useEffect, useRef } from "../html.js";
import uPlot from "../../vendor/uPlot.js";
import { number } from "../format.js";
import { useStore } from "../store.js";
import { colour, colours } from "../theme.js";

const HEIGHT_PX = 190;
export const LINE_COLOURS = ["accent", "warn-fill", "note", "bad", "ok"];

/**
 * `times`: seconds since 1970, ascending; `lines`: [{name, colour, values}]; null values are gaps.
 * `label`: the description for screen readers.
 */
export function LineChart({ label, times, lines, unit = number }) {
  const place = useRef(null);
  const plot = useRef(null);
  const painted = useStore(colours);
  const shape = lines.map((line) => line.name).join("|");

  useEffect(() => {
    const made = new uPlot(options(lines, unit, place.current.clientWidth), data(times, lines), place.current);
    plot.current = made;
    showNewest(made);
    const resized = new ResizeObserver(([entry]) => {
      made.setSize({ width: Math.max(200, Math.floor(entry.contentRect.width)), height: HEIGHT_PX });
    });
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

  const latest = lines.map((line) => `${line.name}: ${unit(line.values.at(-1))}`).join(", ");
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

function options(lines, unit, width) {
  const axis = {
    stroke: colour("text-3"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    font: `12px ${getComputedStyle(document.body).fontFamily}`,
  };
  return {
    width: Math.max(200, Math.floor(width)),
    height: HEIGHT_PX,
    padding: [8, 30, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    scales: { y: { range: (_, low, high) => [0, Math.max(5, high * 1.1)] } },
    axes: [
      { ...axis, space: 90, size: 26, values: "{HH}:{mm}:{ss}" },
      { ...axis, size: 58, space: 36, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? unit(tick) : "")) },
    ],
    series: [
      { label: "Time", value: "{HH}:{mm}:{ss}" },
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.colour),
        width: 1.8,
        points: { show: false },
        value: (_, value) => (value == null ? "–" : unit(value)),
      })),
    ],
  };
}

// All replicas as cells in bands of their brokers, with their states. They are drawn on a canvas, a
// slice in each frame. Later only changed cells are drawn.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { number, plural } from "../format.js";
import { usePolled } from "../live.js";
import { go } from "../router.js";
import { useStore } from "../store.js";
import { colour, colours } from "../theme.js";
import { Waiting } from "./basics.js";
import { LABEL_PX, cellAt, cellsOfSame, kindsOf, layOut } from "./map_layout.js";

const EVERY_MS = 2_000;
const CELLS_A_FRAME = 750;
const PAINTS = {
  leader: "fill",
  follower: "replica",
  late: "warn-fill",
  lost: "bad",
};

export function PartitionMap({ brokers }) {
  const known = usePolled((signal) => get("cluster/partition-map", {}, signal), "map", EVERY_MS);
  if (!known.data) return html`<${Waiting} of=${known} />`;
  return html`<${Drawn} topics=${known.data.topics} brokers=${brokers} />`;
}

function Drawn({ topics, brokers }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [cursor, setCursor] = useState(null);
  const painted = useStore(colours);
  const ids = brokers.map((broker) => broker.broker_id).join(",");
  const layout = useMemo(() => layOut(topics, ids.split(",").filter(Boolean).map(Number), width), [topics, ids, width]);
  const drawn = useRef({ shape: "", kinds: [] });

  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    resized.observe(canvas.current.parentElement);
    return () => resized.disconnect();
  }, []);
  useEffect(() => draw(canvas.current, layout, drawn.current, `${layout.shape}|${painted}`), [layout, painted]);

  const cell = cursor === null ? null : layout.cells[cursor];
  const move = (event) => {
    const box = canvas.current.getBoundingClientRect();
    setCursor(cellAt(layout, event.clientX - box.left, event.clientY - box.top));
  };
  const press = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.perRow, ArrowUp: -layout.perRow }[event.key];
    if (step) {
      const next = (cursor ?? -1) + step;
      setCursor(Math.min(Math.max(next, 0), layout.cells.length - 1));
      event.preventDefault();
    } else if (event.key === "Enter" && cell) open(cell);
    else if (event.key === "Escape") setCursor(null);
  };
  const open = (one) => go(["topics", one.topic, String(one.partition)]);
  const total = layout.cells.length;
  return html`<div class="map">
      <canvas ref=${canvas} tabindex="0" role="application"
        aria-label=${`Map of ${plural(total, "replica")} by broker. Arrow keys select a replica, Enter opens its partition.`}
        aria-describedby="map-cell" onMouseMove=${move} onMouseLeave=${() => setCursor(null)}
        onClick=${() => cell && open(cell)} onKeyDown=${press} onBlur=${() => setCursor(null)}></canvas>
      ${cell && html`<${Marks} layout=${layout} cell=${cell} />`}
      ${cell && html`<${Tip} cell=${cell} layout=${layout} />`}
      <div id="map-cell" class="hidden-text" aria-live="polite">${cell && wordsOf(cell)}</div>
    </div>
    <div class="legend">
      <span><i class="leader"></i>leads</span><span><i></i>follows in sync</span>
      <span><i class="warn"></i>out of sync</span><span><i class="bad"></i>no leader</span>
      <span class="faint">One cell is one replica; pointing at it marks the others of its partition.</span>
    </div>`;
}

function Tip({ cell, layout }) {
  const isRight = cell.x > layout.width / 2;
  const across = isRight ? { right: `${layout.width - cell.x + 8}px` } : { left: `${cell.x + layout.size + 8}px` };
  return html`<div class="tip" style=${{ top: `${cell.y + layout.size + 8}px`, left: "auto", right: "auto", ...across }}>
    <strong>${cell.topic}/${cell.partition}</strong>${wordsOf(cell, false)}
  </div>`;
}

function wordsOf(cell, named = true) {
  const name = named ? `${cell.topic}/${cell.partition}: ` : "";
  const does = { leader: "leads", follower: "follows in sync", late: "is out of sync", lost: "has no leader" }[cell.kind];
  const leader = cell.kind === "leader" || cell.leader == null ? "" : `; broker ${cell.leader} leads`;
  return `${name}broker ${number(cell.broker)} ${does}${leader}`;
}

/** Frames around the replicas of the selected partition. They are elements, so that no cell has to be
 * drawn again. */
function Marks({ layout, cell }) {
  return cellsOfSame(layout, cell).map((one) => {
    return html`<div class="mark ${one === cell ? "here" : ""}" key=${one.broker} style=${{
      left: `${one.x - 2}px`,
      top: `${one.y - 2}px`,
      width: `${layout.size + 4}px`,
      height: `${layout.size + 4}px`,
    }}></div>`;
  });
}

function draw(canvas, layout, before, shape) {
  if (layout.width === 0) return undefined;
  const kinds = kindsOf(layout);
  const isNew = before.shape !== shape;
  const context = isNew ? prepared(canvas, layout) : canvas.getContext("2d");
  const waiting = [];
  for (let at = 0; at < kinds.length; at += 1) {
    if (isNew || kinds[at] !== before.kinds[at]) waiting.push(at);
  }
  if (isNew) label(context, layout);
  // Cells of a cancelled slice stay unknown, so that the next call draws them.
  const known = isNew ? [] : before.kinds.slice();
  Object.assign(before, { shape, kinds: known });
  const paints = Object.fromEntries(Object.entries(PAINTS).map(([kind, name]) => [kind, colour(name)]));
  let next = 0;
  let frame = 0;
  const slice = () => {
    const end = Math.min(waiting.length, next + CELLS_A_FRAME);
    let painted = "";
    for (; next < end; next += 1) {
      const cell = layout.cells[waiting[next]];
      context.clearRect(cell.x, cell.y, layout.size, layout.size);
      if (cell.kind !== painted) context.fillStyle = paints[cell.kind];
      painted = cell.kind;
      context.fillRect(cell.x, cell.y, layout.size, layout.size);
      known[waiting[next]] = cell.kind;
    }
    if (next < waiting.length) frame = requestAnimationFrame(slice);
  };
  slice();
  return () => cancelAnimationFrame(frame);
}

function prepared(canvas, { width, height }) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function label(context, layout) {
  context.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = colour("text-2");
  context.textBaseline = "top";
  for (const band of layout.bands) context.fillText(`Broker ${band.broker}`, 0, band.y, LABEL_PX - 12);
}

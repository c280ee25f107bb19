// The layout of the map of partitions, without drawing.
export const LABEL_PX = 88;
const GAP_PX = 2;
const BAND_GAP_PX = 14;
const LEAST_BAND_PX = 16;
// Sizes of cells. A smaller size is used beyond PREFERRED_ROWS rows of a broker.
const SIZES_PX = [16, 13, 10, 8, 6];
const PREFERRED_ROWS = 6;

/**
 * `topics`: [{topic, partitions: [[leader, replicas, isr], ...]}] by partition. Cells are in the
 * order of bands: broker by broker, topic by topic. `shape` changes with the positions of cells, not
 * with their states.
 */
export function layOut(topics, brokerIds, width) {
  const held = replicasByBroker(topics, brokerIds);
  const most = Math.max(1, ...[...held.values()].map((replicas) => replicas.length));
  const size = sizeFor(most, width);
  const perRow = rowLength(size, width);
  const cells = [];
  const bands = [];
  let y = 0;
  for (const [broker, replicas] of held) {
    bands.push({ broker, y, first: cells.length, count: replicas.length });
    replicas.forEach((replica, at) => {
      replica.x = LABEL_PX + (at % perRow) * (size + GAP_PX);
      replica.y = y + Math.floor(at / perRow) * (size + GAP_PX);
      cells.push(replica);
    });
    const rows = Math.ceil(replicas.length / perRow);
    y += Math.max(LEAST_BAND_PX, rows * (size + GAP_PX)) + BAND_GAP_PX;
  }
  const shape = [width, ...[...held].map(([broker, replicas]) => `${broker}:${replicas.length}`)].join("|");
  return { cells, bands, size, perRow, width, height: Math.max(1, y - BAND_GAP_PX), shape };
}

function replicasByBroker(topics, brokerIds) {
  const held = new Map(brokerIds.map((broker) => [broker, []]));
  for (const { topic, partitions } of topics) {
    partitions.forEach(([leader, replicas, isr], partition) => {
      for (const broker of replicas) {
        if (!held.has(broker)) held.set(broker, []);
        held.get(broker).push({ topic, partition, broker, leader, kind: kindOf(broker, leader, isr) });
      }
    });
  }
  return held;
}

function kindOf(broker, leader, isr) {
  if (leader == null) return "lost";
  if (leader === broker) return "leader";
  return isr.includes(broker) ? "follower" : "late";
}

/** The cells of all replicas of a cell's partition. */
export function cellsOfSame(layout, { topic, partition }) {
  return layout.cells.filter((cell) => cell.partition === partition && cell.topic === topic);
}

export function kindsOf(layout) {
  return layout.cells.map((cell) => cell.kind);
}

function rowLength(size, width) {
  return Math.max(1, Math.floor((width - LABEL_PX + GAP_PX) / (size + GAP_PX)));
}

function sizeFor(most, width) {
  return SIZES_PX.find((size) => most <= PREFERRED_ROWS * rowLength(size, width)) ?? SIZES_PX.at(-1);
}

/** The number of the cell at a point; null: none. */
export function cellAt(layout, x, y) {
  const pitch = layout.size + GAP_PX;
  const column = Math.floor((x - LABEL_PX) / pitch);
  if (column < 0 || column >= layout.perRow) return null;
  const band = layout.bands.findLast((one) => y >= one.y);
  if (!band) return null;
  const inBand = Math.floor((y - band.y) / pitch) * layout.perRow + column;
  return inBand < band.count ? band.first + inBand : null;
}

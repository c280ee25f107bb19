// Sizes and rates of topics. What no broker reports is unknown, and what lacks a part is marked: see
// `figures` in GET /v1/topics.
import { NONE, byteRate, bytes, number, perSecond } from "./format.js";

const AT_LEAST = "≥ ";

/** `value`: null if it is not known. `lacking`: how many partitions or replicas it lacks. */
const FIGURES = [
  { name: "Records", width: "112px", key: "approximate_records", lacking: "partitions_unknown", show: number, sum: (text) => `${text} records` },
  { name: "On disk", width: "96px", key: "total_bytes", lacking: "replicas_unknown", show: bytes, sum: (text) => `${text} on disk` },
  { name: "Records/s", width: "96px", key: "records_per_second", lacking: "partitions_unmeasured", show: perSecond, sum: (text) => `${text.replace("/s", "")} records/s` },
  { name: "Bytes/s", width: "104px", key: "bytes_per_second", lacking: "partitions_unmeasured", show: byteRate, sum: (text) => text },
];

function cellOf({ key, lacking, show }, figures) {
  const value = figures?.[key] ?? null;
  if (value === null) return { value, text: NONE };
  return { value, text: `${figures[lacking] > 0 ? AT_LEAST : ""}${show(value)}` };
}

/** [{name, width, of}]: `of(figures)` is {value, text}. */
export const COLUMNS = FIGURES.map((figure) => ({ name: figure.name, width: figure.width, of: (figures) => cellOf(figure, figures) }));

/** [{name, text}] of one topic. */
export function figuresOf(figures) {
  return FIGURES.map((figure) => ({ name: figure.name, text: cellOf(figure, figures).text }));
}

/** The sums of topics as texts; those without any known part are left out. */
export function sumsOf(topics) {
  return FIGURES.flatMap((figure) => {
    const known = topics.filter(({ figures }) => figures?.[figure.key] != null).map(({ figures }) => figures);
    if (!known.length) return [];
    const total = known.reduce((sum, figures) => sum + figures[figure.key], 0);
    const isPart = known.length < topics.length || known.some((figures) => figures[figure.lacking] > 0);
    return [`${isPart ? AT_LEAST : ""}${figure.sum(figure.show(total))}`];
  });
}

// Records as files. Pure, except `download`.

// A spreadsheet would run a cell that begins with one of these as a formula.
const FORMULA = /^[=+\-@\t\r]/;
const COLUMNS = ["topic", "partition", "offset", "timestamp_ms", "key", "key_encoding", "value", "value_encoding", "headers"];

/** JSON lines, as the REST API has the records. */
export function toJsonLines(records) {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}

/** CSV (RFC 4180) with a head. A text that resembles a formula gets an apostrophe in front. A missing
 * key or value has an empty encoding. */
export function toCsv(records) {
  return [COLUMNS, ...records.map(cells)].map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}

function cells(record) {
  const { topic, partition, offset, timestamp_ms: timeMs, key, value, headers } = record;
  return [
    topic, partition, offset, timeMs,
    harmless(key ?? ""), key == null ? "" : record.key_encoding,
    harmless(value ?? ""), value == null ? "" : record.value_encoding,
    JSON.stringify(headers ?? []),
  ];
}

function harmless(text) {
  return FORMULA.test(text) ? `'${text}` : text;
}

function quoted(cell) {
  return typeof cell === "number" ? String(cell) : `"${String(cell).replaceAll('"', '""')}"`;
}

/** Lets the browser save a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  // The browser has read the address once the click is handled.
  setTimeout(() => URL.revokeObjectURL(url), 0);
}

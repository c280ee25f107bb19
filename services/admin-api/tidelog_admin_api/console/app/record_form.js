// A record to write, from the fields of a form, and the outcome of writing it. Pure.

// Limits of the REST API: RecordToProduce and HeaderToProduce in bodies/record_bodies.py.
export const MAX_HEADERS = 100;
const MAX_HEADER_NAME = 1_000;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const UTF8 = new TextEncoder();

/** `keyAs`, `valueAs` and `as` of a header: text, json or base64; `valueAs` also none. An empty text is no
 * key. `time`: of a datetime-local field; empty: now. `partition`: empty: automatic. */
export const NEW_RECORD = { partition: "", keyAs: "text", key: "", valueAs: "text", value: "", headers: [], time: "", acks: "all" };

/** The fields of a copy of a record that was read with `encoding=text`. The copy gets a new timestamp. */
export function fieldsOf({ partition, key, key_encoding: keyAs, value, value_encoding: valueAs, headers }) {
  return {
    ...NEW_RECORD,
    partition: String(partition),
    // As base64, an empty key is a key.
    ...(key == null ? {} : { key, keyAs: key === "" ? "base64" : keyAs }),
    ...(value == null ? { valueAs: "none" } : { value, valueAs }),
    headers: headers.map((header) => ({ name: header.key, value: header.value, as: header.value_encoding })),
  };
}

/**
 * {body, bytes, wrong}: the body of the request; the size of key, value and headers in bytes; what is
 * wrong, by field (a header's is `header 0`). `partitions`: the number of the topic's partitions.
 */
export function recordOf(fields, partitions) {
  const key = encoded(fields.key, fields.keyAs === "text" && fields.key === "" ? "none" : fields.keyAs);
  const value = encoded(fields.value, fields.valueAs);
  const headers = fields.headers.map((header) => ({ name: header.name, ...encoded(header.value, header.as) }));
  const record = {
    key: key.value,
    key_encoding: key.encoding,
    value: value.value,
    value_encoding: value.encoding,
    headers: headers.map((header) => ({ key: header.name, value: header.value, value_encoding: header.encoding })),
    ...(fields.partition === "" ? {} : { partition: Number(fields.partition) }),
    ...(fields.time === "" ? {} : { timestamp_ms: new Date(fields.time).getTime() }),
  };
  const wrong = {
    partition: wrongPartition(fields.partition, partitions),
    key: key.wrong,
    value: value.wrong,
    time: fields.time !== "" && !(record.timestamp_ms >= 0) ? "Give a time after 1970, or leave the field empty." : "",
    ...Object.fromEntries(headers.map((header, at) => [`header ${at}`, wrongHeader(header)])),
  };
  const bytes = key.bytes + value.bytes + headers.reduce((sum, header) => sum + header.bytes + sizeOf(header.name), 0);
  return { body: { records: [record], acks: fields.acks }, bytes, wrong: Object.fromEntries(Object.entries(wrong).filter(([, text]) => text)) };
}

/** {value, encoding, bytes, wrong} of a text as none, text, json or base64. JSON is only checked, and sent
 * as text: parsing and serializing would change numbers of 64 bits, spaces and the order of keys. */
export function encoded(text, as) {
  if (as === "none") return { value: null, encoding: "text", bytes: 0, wrong: "" };
  if (as === "base64") return ofBase64(text.replace(/\s+/g, ""));
  const wrong = as === "json" ? wrongJson(text) : "";
  return { value: text, encoding: "text", bytes: sizeOf(text), wrong: wrong || wrongText(text) };
}

function ofBase64(value) {
  const padding = value.endsWith("==") ? 2 : value.endsWith("=") ? 1 : 0;
  const wrong = BASE64.test(value) ? "" : "This is not base64: use A-Z, a-z, 0-9, + and /, padded with = to a multiple of four characters.";
  return { value, encoding: "base64", bytes: Math.max(0, Math.floor(value.length / 4) * 3 - padding), wrong };
}

function wrongJson(text) {
  if (!text.trim()) return "Enter a JSON value, such as {\"tide\": \"ebb\"}.";
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `This is not JSON: ${error.message}.`;
  }
}

function wrongText(text) {
  return text.isWellFormed() ? "" : "A character is half of a surrogate pair, which UTF-8 does not allow; use base64.";
}

function wrongPartition(partition, partitions) {
  const isRight = partition === "" || (/^\d+$/.test(partition) && Number(partition) < partitions);
  return isRight ? "" : `The topic has the partitions 0 to ${partitions - 1}.`;
}

function wrongHeader({ name, wrong }) {
  if (name === "") return "Enter the name of the header, or remove it.";
  return name.length > MAX_HEADER_NAME ? `A name has at most ${MAX_HEADER_NAME} characters.` : wrong || wrongText(name);
}

function sizeOf(text) {
  return UTF8.encode(text).length;
}

/** {kind, partition, offset, problem} of the answer: `written`; `sent` without an acknowledgement;
 * `rejected`; or `unknown`. */
export function outcomeOf({ results: [{ partition, offset, error }] }) {
  if (error) {
    const problem = { title: "The record is not known to be written", detail: error.message, fix: error.fix };
    return { kind: error.outcome_unknown ? "unknown" : "rejected", problem };
  }
  return { kind: offset == null ? "sent" : "written", partition, offset };
}

/** The outcome of a request that failed as a whole. Without an answer of the gateway, and after a fault
 * in it, the record may be written. */
export function outcomeOfFailure(problem) {
  const { status = 0, code = "" } = problem;
  const isUnknown = status === 0 || status === 504 || (status >= 500 && ["", "INTERNAL"].includes(code));
  return { kind: isUnknown ? "unknown" : "rejected", problem };
}

// A search of a range of records by the gateway: its criteria, its progress, and what it has found.
import { html, useEffect, useRef, useState } from "../html.js";
import { at, lines } from "../api.js";
import { bytes, number, plural } from "../format.js";
import { Field, ProblemNote, Progress } from "./basics.js";
import { Export, RecordTable } from "./record_table.js";

// Records that the page keeps. Each search adds at most as many as the page asks for.
const MAX_KEPT = 5_000;
const MAX_SKIPPED_NAMED = 5;
// How often the page shows what has come.
const SHOW_MS = 100;
const CRITERIA = [
  ["value_contains", "Value contains", "search"],
  ["key", "Key is", "text"],
  ["key_contains", "Key contains", "text"],
  ["header", "Has the header", "text"],
  ["header_value", "Header value is", "text"],
  ["json_path", "JSON path", "text", "order.items[0].id"],
  ["json_equals", "JSON value is", "text"],
];
const NAMES = [...CRITERIA.map(([name]) => name), "after", "until", "start", "stop"];
const NOTHING = { found: [], skipped: [], skippedCount: 0, progress: null, end: null, problem: null };

/** The fields of a search in an address. */
export function searchFields(query) {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
}

/** The parameters of the request. Offsets are those of one partition. */
export function searchQuery(asked, cursor) {
  const given = Object.fromEntries(CRITERIA.map(([name]) => [name, asked[name]]));
  const one = asked.partition !== "";
  return {
    ...given,
    partition: asked.partition,
    offset: one ? asked.start : "",
    before_offset: one ? asked.stop : "",
    timestamp_ms: one && asked.start ? "" : msOf(asked.after),
    before_timestamp_ms: one && asked.stop ? "" : msOf(asked.until),
    max_matches: asked.count,
    encoding: "text",
    cursor,
  };
}

function msOf(time) {
  return time ? Math.max(0, new Date(time).getTime()) || "" : "";
}

export function RecordSearch({ asked, set, topic }) {
  const [state, setState] = useState(NOTHING);
  const [isRunning, setRunning] = useState(false);
  const running = useRef(null);
  const sought = useRef(asked);
  useEffect(() => () => running.current?.abort(), []);

  async function run(cursor) {
    const own = new AbortController();
    running.current = own;
    setRunning(true);
    let now = cursor ? { ...state, end: null, problem: null } : NOTHING;
    const show = () => setState(now);
    const timer = setInterval(show, SHOW_MS);
    try {
      for await (const line of lines(at("topics", topic.topic, "search"), searchQuery(sought.current, cursor), own.signal)) {
        now = withLine(now, line);
      }
      if (!now.end) now = { ...now, problem: { title: "The search was interrupted", fix: "Continue it, or start it again." } };
    } catch (problem) {
      if (!own.signal.aborted) now = { ...now, problem };
    }
    clearInterval(timer);
    if (running.current !== own) return;
    // Without an end, the search continues from where it was last.
    if (!now.end && now.progress) now = { ...now, end: { ...now.progress, reason: own.signal.aborted ? "cancelled" : "interrupted" } };
    show();
    setRunning(false);
  }

  const submit = (event) => {
    event.preventDefault();
    if (isRunning) return;
    // A key that starts the search changes its field in the same moment.
    sought.current = { ...asked, ...Object.fromEntries(new FormData(event.target)) };
    set(sought.current);
    run("");
  };
  const cancel = () => running.current?.abort();
  return html`<${Criteria} asked=${asked} set=${set} isRunning=${isRunning} onSubmit=${submit} onCancel=${cancel} />
    <${Outcome} state=${state} isRunning=${isRunning} onContinue=${run} topic=${topic.topic} />`;
}

/** `set` changes the address, so that it contains the search. */
function Criteria({ asked, set, isRunning, onSubmit, onCancel }) {
  const input = (name, label, type, hint = undefined) => html`<${Field} key=${name} label=${label}>
    <input class="short" name=${name} type=${type} value=${asked[name]} placeholder=${hint} autocomplete="off" spellcheck=${false}
      step=${type === "datetime-local" ? 1 : undefined} min=${type === "number" ? 0 : undefined} disabled=${isRunning}
      onChange=${(event) => set({ [name]: event.target.value })} /><//>`;
  // The buttons have keys: one element for both would be a submit button again by the end of the click
  // that cancels.
  return html`<form class="toolbar ask" aria-label="Search" onSubmit=${onSubmit}>
    ${CRITERIA.map((one) => input(...one))}
    ${input("after", "Not before", "datetime-local")}
    ${input("until", "Before", "datetime-local")}
    ${asked.partition !== "" && html`${input("start", "From offset", "number")}${input("stop", "Before offset", "number")}`}
    ${isRunning
      ? html`<button key="cancel" class="button" type="button" onClick=${onCancel}>Cancel</button>`
      : html`<button key="search" class="button primary" data-first-act>Search</button>`}
  </form>`;
}

function Outcome({ state, isRunning, onContinue, topic }) {
  const { found, skipped, skippedCount, progress, end, problem } = state;
  const known = end ?? progress;
  if (!known && !problem && !isRunning) {
    return html`<p class="small faint" style=${{ padding: "12px 16px" }}>A search scans the records of the range from old to new. A record has to meet all criteria. Upper and lower case differ.</p>`;
  }
  const canContinue = !isRunning && end?.cursor && found.length < MAX_KEPT;
  return html`<div class="stack" style=${{ padding: "12px 16px" }}>
      ${known && html`<${Progress} label="Searched part of the range" part=${partOf(known)} whole=${1} ended=${!isRunning} />
        <div class="row small"><span role="status">${stateWords(state, isRunning)}</span>
          ${canContinue && html`<button class="button compact" onClick=${() => onContinue(end.cursor)}>Continue</button>`}
          <${Export} topic=${topic} records=${found} /></div>
        <p class="small faint">${rangeWords(known)}</p>`}
      ${skippedCount > 0 && html`<p class="warned">${skippedWords(skipped, skippedCount)}</p>`}
      <${ProblemNote} problem=${problem} />
    </div>
    ${(found.length > 0 || (end && !isRunning)) && html`<${RecordTable} topic=${topic} records=${found} empty="No record of this range matches." />`}`;
}

/** The state after one more line of the answer. */
export function withLine(state, line) {
  if (line.type === "match") return { ...state, found: [...state.found, line.record].slice(0, MAX_KEPT) };
  if (line.type === "skipped") {
    const skipped = state.skipped.length < MAX_SKIPPED_NAMED ? [...state.skipped, line] : state.skipped;
    return { ...state, skipped, skippedCount: state.skippedCount + 1 };
  }
  return { ...state, [line.type]: line };
}

/** The searched part of the range, from 0 to 1. */
export function partOf({ done, partitions, first_offset: first, next_offset: next, before_offset: before }) {
  if (done >= partitions) return 1;
  const inside = before > first ? (next - first) / (before - first) : 0;
  return partitions > 0 ? (done + Math.min(1, inside)) / partitions : 1;
}

const ENDS = {
  complete: "The whole range was searched",
  cancelled: "Cancelled",
  interrupted: "Interrupted",
  stopping: "The gateway is stopping",
  timeout: "The time limit of a search is reached",
  max_matches: "The maximum number of matches is reached",
  max_match_bytes: "The maximum size of all matches is reached",
  max_scanned: "The maximum number of scanned records is reached",
  max_scanned_bytes: "The maximum number of scanned bytes is reached",
  max_partitions: "The maximum number of partitions is reached",
  max_skipped: "Too many records cannot be read",
};

export function stateWords({ found, progress, end }, isRunning) {
  const known = end ?? progress;
  const head = isRunning || !end ? "Searching" : (ENDS[end.reason] ?? end.reason);
  const unread = known.not_examined > 0 ? `; ${plural(known.not_examined, "record")} too large to be examined` : "";
  return `${head}: ${plural(found.length, "record")} found among ${number(known.scanned)} (${bytes(known.scanned_bytes)})${unread}.`;
}

function rangeWords({ partition, done, partitions, first_offset: first, next_offset: next, before_offset: before }) {
  const range = before > first ? `offsets ${number(first)} to ${number(before - 1)}, next ${number(next)}` : "no records in the range";
  return `Partition ${partition}: ${range}. ${number(Math.min(done, partitions))} of ${plural(partitions, "partition")} done.`;
}

function skippedWords(skipped, count) {
  const named = skipped.map(({ partition, first_offset: first, next_offset: next, error }) => {
    const from = first == null ? "all records" : next == null ? `from offset ${number(first)}` : `offsets ${number(first)} to ${number(next - 1)}`;
    return `partition ${partition}, ${from} (${error.message})`;
  });
  const more = count > named.length ? `; and ${number(count - named.length)} more` : "";
  return `Left out, because they cannot be read: ${named.join("; ")}${more}.`;
}

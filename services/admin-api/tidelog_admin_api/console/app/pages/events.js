// State changes of all services, live.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { all, get } from "../api.js";
import { clock, number, words } from "../format.js";
import { poll, useEvents, usePolled } from "../live.js";
import { overview } from "../overview_store.js";
import { replaceQuery } from "../router.js";
import { useStore } from "../store.js";
import { Empty, PageHead, ProblemNote, isUnknown } from "../parts/basics.js";
import { PartitionChoice } from "../parts/partition_choice.js";
import { Missing, Timeline, toneOfEvent } from "../parts/timeline.js";

const MAX_KEPT = 2_000;
const MAX_FIRST = 200;
const FILTERS = ["topic", "partition", "broker", "kind"];
const NOT_WELL = ["bad", "warn"];
const FIRST_AGAIN_MS = 2_000;
const TOPICS_EVERY_MS = 15_000;
// Since then, a stream begins with all events that services remember. Since 0, with new events.
const BEGINNING_MS = 1;
// How long a note is shown. No message reports that a service answers again.
const NOTE_MS = 60_000;

export function Events({ query }) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  return html`<${Filtered} key=${JSON.stringify(filters)} filters=${filters} />`;
}

/** The events that services remember, followed by new events. */
function Filtered({ filters }) {
  const [first, setFirst] = useState(null);
  const [problem, setProblem] = useState(null);
  const wrong = wrongOf(filters);
  useEffect(() => {
    if (wrong) return undefined;
    const poller = poll((signal) => get("events", { ...filters, limit: MAX_FIRST }, signal), FIRST_AGAIN_MS, ({ data, error }) => {
      setProblem(error ?? null);
      if (!data) return;
      setFirst(data);
      poller.stop();
    });
    return poller.stop;
  }, []);
  return html`<${Followed} filters=${filters} first=${first} problem=${problem} wrong=${wrong} />`;
}

function wrongOf({ partition, broker, topic }) {
  const isNumber = (value) => value === "" || /^\d+$/.test(value);
  if (!isNumber(partition) || !isNumber(broker)) return "Partition and broker are numbers.";
  return partition !== "" && topic === "" ? "Give the topic of the partition, too." : "";
}

function Followed({ filters, first, problem, wrong }) {
  const [events, setEvents] = useState([]);
  const [note, addNote] = useNote();
  const [isPaused, setPaused] = useState(false);
  const known = useRef(new Set());
  const take = (received) => {
    const added = received.filter((event) => !known.current.has(event.id));
    if (!added.length) return;
    for (const event of added) known.current.add(event.id);
    setEvents((before) => {
      const kept = [...added.map((event) => ({ ...event, at: event.time_ms })), ...before].sort((a, b) => b.at - a.at).slice(0, MAX_KEPT);
      known.current = new Set(kept.map((event) => event.id));
      return kept;
    });
  };
  useEffect(() => {
    if (first) take(first.items);
  }, [first]);
  // By the clocks of services, since the clock of this machine may be ahead.
  const since = useMemo(() => (first ? (first.items.at(-1)?.time_ms ?? BEGINNING_MS) : 0), [first]);
  const state = useEvents("events/stream", { ...filters, since_ms: since }, take, addNote, first !== null && !isPaused && !wrong);
  return html`<${PageHead} title="Events" beside=${html`<${Following} state=${state} isPaused=${isPaused} problem=${problem} wrong=${wrong} />`}>
      <button class="button" data-first-act aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Continue" : "Pause"}</button>
    <//>
    ${problem && !isUnknown(problem) && html`<div style=${{ marginBottom: "16px" }}><${ProblemNote} problem=${problem} /></div>`}
    <${Listed} events=${events} first=${first} filters=${filters} wrong=${wrong} note=${note} problem=${problem} />`;
}

/** The last message besides events, with its time, and a function that sets it. */
function useNote() {
  const [note, setNote] = useState("");
  useEffect(() => {
    const timer = setTimeout(setNote, NOTE_MS, "");
    return () => clearTimeout(timer);
  }, [note]);
  const addNote = (name, data) => {
    const text = name === "missed" ? "some events came too fast to be shown" : `${data.address} does not answer: ${data.problem}`;
    setNote(`${clock(Date.now())}: ${text}`);
  };
  return [note, addNote];
}

/** A stream stays open even if the gateway hangs. Only the overview, which is polled, shows whether
 * the gateway still answers. */
function Following({ state, isPaused, problem, wrong }) {
  const { error, late } = useStore(overview);
  if (wrong) return html`<span class="live still">no request</span>`;
  if (isUnknown(problem)) return html`<span class="live lost">not found</span>`;
  if (problem) return html`<span class="live lost">not up to date, trying again</span>`;
  if (isPaused) return html`<span class="live still">paused</span>`;
  if (state === "lost") return html`<span class="live lost">connection lost, trying again</span>`;
  if (error || late) return html`<span class="live lost">not up to date, trying again</span>`;
  return html`<span class="live ${state === "open" ? "" : "still"}">${state === "open" ? "live" : "connecting"}</span>`;
}

function Listed({ events, first, filters, wrong, note, problem }) {
  const [isBadOnly, setBadOnly] = useState(false);
  const [search, setSearch] = useState("");
  const found = useMemo(
    () => events.filter((event) => (!isBadOnly || NOT_WELL.includes(toneOfEvent(event))) && matches(event, search)),
    [events, isBadOnly, search],
  );
  return html`<section class="panel" aria-label="Events">
    <div class="toolbar">
      <input type="search" placeholder="Search these events ( / )" aria-label="Search these events" value=${search} onInput=${(event) => setSearch(event.target.value)} />
      <${Filters} filters=${filters} />
      <label class="check"><input type="checkbox" checked=${isBadOnly} onChange=${() => setBadOnly(!isBadOnly)} />Only problems</label>
      <span class="faint small">${number(found.length)} of ${number(events.length)}</span>
      ${wrong && html`<span class="wrong small" role="alert">${wrong}</span>`}
      ${note && html`<span class="faint small">${note}</span>`}
    </div>
    ${first && html`<${Missing} list=${first} />`}
    ${found.length ? html`<${Timeline} events=${found} />` : html`<${NoneListed} events=${events} first=${first} problem=${problem} wrong=${wrong} />`}
  </section>`;
}

/** Topics and brokers that do not exist any more may still have events, so that the address may name them. */
function Filters({ filters }) {
  const topics = usePolled((signal) => all("topics", { internal: true }, signal), "topics", TOPICS_EVERY_MS).data ?? [];
  const brokers = useStore(overview).data?.brokers ?? [];
  const set = (changed) => replaceQuery(["events"], { ...filters, ...changed });
  const count = topics.find((one) => one.topic === filters.topic)?.partitions ?? 0;
  const options = (known, chosen) => (chosen === "" || known.includes(chosen) ? known : [...known, chosen]);
  return html`<label class="check">Topic <select name="topic" value=${filters.topic} onChange=${(event) => set({ topic: event.target.value, partition: "" })}>
      <option value="">all</option>
      ${options(topics.map((one) => one.topic), filters.topic).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select></label>
    ${filters.topic !== "" && html`<label class="check">Partition <${PartitionChoice} count=${Math.max(count, (Number(filters.partition) || 0) + 1)} chosen=${filters.partition}
      onChange=${(event) => set({ partition: event.target.value })} /></label>`}
    <label class="check">Broker <select name="broker" value=${filters.broker} onChange=${(event) => set({ broker: event.target.value })}>
      <option value="">all</option>
      ${options(brokers.map((one) => String(one.broker_id)), filters.broker).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select></label>`;
}

function NoneListed({ events, first, problem, wrong }) {
  if (isUnknown(problem)) return html`<${Empty} title="Not found">${problem.detail}<//>`;
  if (wrong) return html`<${Empty} title="No request.">${wrong}<//>`;
  if (first === null) return html`<${Empty} title=${problem ? "No data." : "Loading…"} />`;
  return html`<${Empty} title=${events.length ? "No event matches." : "There are no events yet."}>New events appear here automatically.<//>`;
}

function matches(event, search) {
  if (!search) return true;
  const text = [event.kind, words(event.kind), event.stage, event.cause, words(event.cause), event.topic, event.service, JSON.stringify(event.details ?? "")].join(" ");
  return text.toLowerCase().includes(search.toLowerCase());
}

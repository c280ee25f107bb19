// State changes of all services, live.
import { html, useMemo, useRef, useState } from "../html.js";
import { number, words } from "../format.js";
import { useEvents } from "../live.js";
import { replaceQuery } from "../router.js";
import { Empty, PageHead } from "../parts/basics.js";
import { Entry, toneOfEvent } from "../parts/timeline.js";

const MAX_KEPT = 2_000;
const SHOWN_AT_ONCE = 150;
const FIRST_LIMIT = 200;

export function Events({ query }) {
  const asked = Object.fromEntries(["topic", "partition", "broker", "kind"].map((name) => [name, query.get(name) ?? ""]));
  return html`<${Followed} key=${JSON.stringify(asked)} asked=${asked} />`;
}

function Followed({ asked }) {
  const [events, setEvents] = useState([]);
  const [isPaused, setPaused] = useState(false);
  const [isBadOnly, setBadOnly] = useState(false);
  const [search, setSearch] = useState("");
  const [shownCount, setShownCount] = useState(SHOWN_AT_ONCE);
  const count = useRef(0);
  const wrong = isPart(asked.partition) && isPart(asked.broker) ? "" : "Partition and broker are numbers.";
  const state = useEvents("events/stream", { ...asked, limit: FIRST_LIMIT }, (told) => {
    const come = told.map((event) => ({ ...event, at: event.time_ms ?? Date.parse(event.time), n: (count.current += 1) }));
    setEvents((before) => [...come.reverse(), ...before].sort((a, b) => b.at - a.at).slice(0, MAX_KEPT));
  }, !isPaused && !wrong);
  const shown = useMemo(
    () => events.filter((event) => (!isBadOnly || ["bad", "warn"].includes(toneOfEvent(event))) && matches(event, search)),
    [events, isBadOnly, search],
  );
  const filter = (name) => (event) => replaceQuery(["events"], { ...asked, [name]: event.target.value.trim() });
  const live = isPaused ? "still" : state === "open" ? "" : "lost";

  return html`<${PageHead} title="Events" beside=${html`<span class="live ${live}">${isPaused ? "paused" : state === "open" ? "live" : state === "lost" ? "connection lost, trying again" : "connecting"}</span>`}>
      <button class="button" data-first-act aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
    <//>
    <section class="panel" aria-label="Events">
      <div class="toolbar">
        <input type="search" placeholder="Find in what is here ( / )" aria-label="Find in what is here" value=${search} onInput=${(event) => setSearch(event.target.value)} />
        <input class="short" placeholder="topic" aria-label="Topic" value=${asked.topic} onChange=${filter("topic")} />
        <input class="shorter" placeholder="partition" aria-label="Partition" inputmode="numeric" value=${asked.partition} onChange=${filter("partition")} />
        <input class="shorter" placeholder="broker" aria-label="Broker" inputmode="numeric" value=${asked.broker} onChange=${filter("broker")} />
        <label class="check"><input type="checkbox" checked=${isBadOnly} onChange=${() => setBadOnly(!isBadOnly)} />Only what is not well</label>
        <span class="faint small">${number(shown.length)} of ${number(events.length)}</span>
        ${wrong && html`<span class="wrong small" role="alert">${wrong}</span>`}
      </div>
      ${shown.length
        ? html`<ol class="timeline" style=${{ paddingTop: "8px" }}>${shown.slice(0, shownCount).map((event) => html`<${Entry} key=${event.n} event=${event} about=${true} />`)}</ol>
            ${shown.length > shownCount && html`<p class="toolbar plain"><button class="button" onClick=${() => setShownCount(shownCount + SHOWN_AT_ONCE)}>Show older ones</button></p>`}`
        : html`<${Empty} title=${events.length ? "None is like that." : "Nothing has happened yet."}>What happens from now on shows here by itself.<//>`}
    </section>`;
}

function isPart(value) {
  return value === "" || /^\d+$/.test(value);
}

function matches(event, search) {
  if (!search) return true;
  const text = [event.kind, words(event.kind), event.stage, event.cause, words(event.cause), event.topic, event.service, JSON.stringify(event.details ?? "")].join(" ");
  return text.toLowerCase().includes(search.toLowerCase());
}

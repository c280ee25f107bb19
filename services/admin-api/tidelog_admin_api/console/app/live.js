// Live data: by polling, or by server-sent events. Both pause while the page is hidden.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { urlOf } from "./api.js";

// A slow gateway is polled less often.
const REST_PER_BUSY_MS = 4;
const MAX_PAUSE_MS = 15_000;
// After this time without an answer the page shows that the answer is late.
const LATE_MS = 3_000;
export const NOT_FOUND = 404;
// Pause before a rejected stream is opened again.
const REOPEN_MS = 2_000;
// A reopened stream repeats events of this period: clocks of services differ, and events may be late.
const RESUME_OVERLAP_MS = 60_000;
// Messages of a stream besides state changes.
const NOTES = ["service_silent", "missed"];

/**
 * Polls `load(signal)` every `everyMs` and whenever `key` changes, except while `paused`. Returns
 * the fields of `NOTHING`, and `refresh`.
 */
export function usePolled(load, key, everyMs, paused = false) {
  const [state, setState] = useState({ key, known: NOTHING });
  const latest = useRef(load);
  latest.current = load;
  const wake = useRef(() => {});

  useEffect(() => {
    if (paused) return undefined;
    const poller = poll((signal) => latest.current(signal), everyMs, (result) =>
      setState((before) => ({ key, known: after(before.key === key ? before.known : NOTHING, result, Date.now()) })),
    );
    wake.current = poller.now;
    return poller.stop;
  }, [key, everyMs, paused]);

  const refresh = useCallback(() => wake.current(), []);
  return { ...(state.key === key ? state.known : NOTHING), refresh };
}

/** `data`: the last successful answer, or null; `asOfMs`: its time. `error`: the error of the last
 * request; `late`: the request has had no answer for LATE_MS. */
export const NOTHING = { data: null, asOfMs: 0, error: null, late: false };

/** The state after a result: `{data}`, `{error}` or `{late}`. Data of a deleted resource is
 * dropped. */
export function after(known, result, nowMs) {
  if (result.late) return { ...known, late: true };
  if (!result.error) return { data: result.data, asOfMs: nowMs, error: null, late: false };
  const kept = result.error.status === NOT_FOUND ? NOTHING : known;
  return { ...kept, error: result.error, late: false };
}

/** Polls until `stop`, one request at a time. Calls `onResult({data} | {error})`, and before that
 * `onResult({late})` if an answer is late. */
export function poll(load, everyMs, onResult) {
  let stopped = false;
  let timer = 0;
  let running = null;
  let again = false;

  function pauseMs(tookMs, failed) {
    const rest = Math.max(everyMs, Math.min(tookMs * REST_PER_BUSY_MS, MAX_PAUSE_MS));
    return failed ? Math.min(rest, MAX_PAUSE_MS) : rest;
  }

  async function once() {
    clearTimeout(timer);
    if (stopped || document.hidden) return;
    if (running) {
      again = true;
      return;
    }
    running = new AbortController();
    const began = performance.now();
    const late = setTimeout(() => !stopped && onResult({ late: true }), LATE_MS);
    let failed = false;
    try {
      const data = await load(running.signal);
      if (!stopped) onResult({ data });
    } catch (error) {
      failed = true;
      if (!stopped) onResult({ error });
    }
    clearTimeout(late);
    running = null;
    if (stopped) return;
    timer = setTimeout(once, again ? 0 : pauseMs(performance.now() - began, failed));
    again = false;
  }

  function seen() {
    if (!document.hidden) once();
  }

  document.addEventListener("visibilitychange", seen);
  once();
  return {
    now: once,
    stop() {
      stopped = true;
      clearTimeout(timer);
      running?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}

/**
 * Follows a stream of server-sent events while `enabled` and the page is visible. Calls
 * `onEvents(list)` with the events since the last frame, some of which may be repeated, and
 * `onNote(name, data)` with other messages. Returns connecting, open or lost.
 */
export function useEvents(path, query, onEvents, onNote, enabled = true) {
  const [state, setState] = useState("connecting");
  const latest = useRef(onEvents);
  latest.current = onEvents;
  const noted = useRef(onNote);
  noted.current = onNote;
  const requested = useRef(query);
  requested.current = query;

  useEffect(() => {
    if (!enabled) return undefined;
    let waiting = [];
    let frame = 0;
    const hand = () => {
      frame = 0;
      const events = waiting;
      waiting = [];
      latest.current(events);
    };
    const take = (event) => {
      waiting.push(event);
      frame ||= setTimeout(hand, 50);
    };
    const stop = follow(path, requested.current, setState, take, (name, data) => noted.current?.(name, data));
    return () => {
      stop();
      clearTimeout(frame);
    };
  }, [path, JSON.stringify(query), enabled]);

  return state;
}

/**
 * Opens one stream after the other, and returns a function that stops. Browsers reconnect a stream
 * that was interrupted, but not one that was rejected. Each later stream begins RESUME_OVERLAP_MS
 * before the newest event.
 */
export function follow(path, query, setState, take, note) {
  let source = null;
  let timer = 0;
  let newestMs = 0;

  function open() {
    clearTimeout(timer);
    if (source || document.hidden) return;
    const sinceMs = Math.max(query.since_ms ?? 0, newestMs - RESUME_OVERLAP_MS);
    const own = new EventSource(urlOf(path, { ...query, since_ms: sinceMs }));
    source = own;
    own.onopen = () => setState("open");
    own.onerror = () => {
      setState("lost");
      if (own.readyState !== EventSource.CLOSED) return;
      close();
      timer = setTimeout(open, REOPEN_MS);
    };
    own.addEventListener("state_change", (message) => {
      const event = JSON.parse(message.data);
      newestMs = Math.max(newestMs, event.time_ms);
      take(event);
    });
    for (const name of NOTES) own.addEventListener(name, (message) => note(name, JSON.parse(message.data)));
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  // A browser has six connections to a gateway for all its tabs, and a stream takes one.
  function seen() {
    if (!document.hidden) return open();
    close();
    setState("connecting");
  }

  document.addEventListener("visibilitychange", seen);
  setState("connecting");
  open();
  return () => {
    close();
    document.removeEventListener("visibilitychange", seen);
  };
}

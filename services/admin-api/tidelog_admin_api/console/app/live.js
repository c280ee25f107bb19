// What is kept fresh: by asking again, or by server-sent events. Both rest while nobody looks.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { urlOf } from "./api.js";

// A gateway that is slow is not asked the more often for it.
const REST_PER_BUSY_MS = 4;
const MAX_PAUSE_MS = 15_000;
// Whoever has waited so long for an answer is told so.
const LATE_MS = 3_000;
export const NOT_FOUND = 404;
// So long after a refusal a stream is asked for again.
const REOPEN_MS = 2_000;
// So far the clocks of services may be apart, and an event may come late.
const RESUME_OVERLAP_MS = 60_000;
// What a stream tells besides state changes.
const NOTES = ["service_silent", "missed"];

/**
 * The answer of `load(signal)`, asked for again every `everyMs` and whenever `key` changes, but
 * not while `paused`: what is `known` of it, and `refresh`.
 */
export function usePolled(load, key, everyMs, paused = false) {
  const [state, setState] = useState({ key, known: NOTHING });
  const latest = useRef(load);
  latest.current = load;
  const wake = useRef(() => {});

  useEffect(() => {
    if (paused) return undefined;
    const poller = poll((signal) => latest.current(signal), everyMs, (told) =>
      setState((before) => ({ key, known: after(before.key === key ? before.known : NOTHING, told, Date.now()) })),
    );
    wake.current = poller.now;
    return poller.stop;
  }, [key, everyMs, paused]);

  const refresh = useCallback(() => wake.current(), []);
  return { ...(state.key === key ? state.known : NOTHING), refresh };
}

/** `data`: the last good answer, or null; `asOfMs`: when it came. `error`: what is wrong with the
 * newest; `late`: there has been none for LATE_MS. */
export const NOTHING = { data: null, asOfMs: 0, error: null, late: false };

/** What is known once `{data}`, `{error}` or `{late}` is told. Of what is not there any more, no
 * data is kept. */
export function after(known, told, nowMs) {
  if (told.late) return { ...known, late: true };
  if (!told.error) return { data: told.data, asOfMs: nowMs, error: null, late: false };
  const kept = told.error.status === NOT_FOUND ? NOTHING : known;
  return { ...kept, error: told.error, late: false };
}

/** Asks until `stop`, one question at a time; `tell({data} | {error})`, and before it `{late}`
 * where an answer takes long. */
export function poll(load, everyMs, tell) {
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
    const late = setTimeout(() => !stopped && tell({ late: true }), LATE_MS);
    let failed = false;
    try {
      const data = await load(running.signal);
      if (!stopped) tell({ data });
    } catch (error) {
      failed = true;
      if (!stopped) tell({ error });
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
 * Follows a stream of server-sent events while `enabled` and somebody looks; `onEvents(list)` gets
 * what has come since the last frame, of which some may have come before; `onNote(name, data)` what
 * else it tells. Returns connecting, open or lost.
 */
export function useEvents(path, query, onEvents, onNote, enabled = true) {
  const [state, setState] = useState("connecting");
  const latest = useRef(onEvents);
  latest.current = onEvents;
  const noted = useRef(onNote);
  noted.current = onNote;
  const asked = useRef(query);
  asked.current = query;

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
    const stop = follow(path, asked.current, setState, take, (name, data) => noted.current?.(name, data));
    return () => {
      stop();
      clearTimeout(frame);
    };
  }, [path, JSON.stringify(query), enabled]);

  return state;
}

/**
 * One stream after the other until it is stopped by what is returned: browsers go on by themselves
 * with one that broke off, but never with one that was refused. Each later one begins a little
 * before the newest event that has come.
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

// Formats numbers, sizes, times and names for people.
const NUMBER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY_MS = 24 * HOUR;

// The last valid date. Larger values were written in other units than milliseconds.
const LAST_MS = 8.64e15;

export const NONE = "–";

export function number(value) {
  return value == null || value < 0 ? NONE : NUMBER.format(value);
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function bytes(value) {
  if (value == null || value < 0) return NONE;
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left >= 100 || unit === 0 ? Math.round(left) : left.toFixed(1)} ${UNITS[unit]}`;
}

/** A number in a few characters, for an axis: 1.5K. */
export function compact(value) {
  return COMPACT.format(value);
}

/** A rate, with one digit behind the point below 10. */
export function perSecond(value) {
  if (value == null) return NONE;
  return `${NUMBER.format(value < 10 ? Number(value.toFixed(1)) : Math.round(value))}/s`;
}

export function byteRate(value) {
  return value == null ? NONE : `${bytes(value)}/s`;
}

/** Milliseconds in the two largest units. */
export function duration(ms) {
  if (ms == null || ms < 0) return NONE;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / SECOND).toFixed(ms < 10 * SECOND ? 1 : 0)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${Math.floor((ms % MINUTE) / SECOND)} s`;
  if (ms < DAY_MS) return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`;
  return `${Math.floor(ms / DAY_MS)} d ${Math.floor((ms % DAY_MS) / HOUR)} h`;
}

export function ago(timeMs, now = Date.now()) {
  if (!timeMs) return NONE;
  const past = Math.max(0, now - timeMs);
  return past < SECOND ? "now" : `${duration(past)} ago`;
}

/** Time of day, with the date if it is not today. Timestamps of records can have any value. */
export function clock(timeMs, withMs = false) {
  if (!timeMs || timeMs < 0) return NONE;
  if (timeMs > LAST_MS) return `${NUMBER.format(timeMs)} ms`;
  const time = new Date(timeMs);
  const text = CLOCK.format(time) + (withMs ? `.${String(time.getMilliseconds()).padStart(3, "0")}` : "");
  return time.toDateString() === new Date().toDateString() ? text : `${DAY.format(time)} ${text}`;
}

export function exactTime(timeMs) {
  return timeMs > 0 && timeMs <= LAST_MS ? new Date(timeMs).toISOString() : "";
}

/** The words of a name in snake case: "brokers add" for brokers_add. */
export function words(name) {
  return String(name ?? "").replaceAll("_", " ");
}

/** A sentence that begins with a capital, from a name in snake case or from prose. Prose that begins
 * with the name of a partition keeps its case. */
export function sentence(name) {
  const text = String(name).includes(" ") ? String(name) : words(name);
  return /^\S+\/\d/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
}

/** `sentence` for kinds of events: "ISR shrink" for isr_shrink. */
export function kindWords(kind) {
  return sentence(kind).replace(/^(Isr|Hw)\b/, (short) => short.toUpperCase());
}

export function brokers(ids) {
  return ids?.length ? ids.join(", ") : NONE;
}

/** The statement of `tidelog.phrases`. */
export const PREFERRED_RETURN =
  "Leadership returns to preferred replicas by itself: every leader_balance_interval_ms (5 minutes), for each broker that lacks more than leader_imbalance_percent (10 %) of the leaderships that prefer it, unless leader_balance is false.";

// Requests to the gateway. All errors are a `Problem` (RFC 9457), also if no gateway answers.
const BASE = new URL("../v1/", document.baseURI);
// Default timeout_ms of the gateway.
const USUAL_TIMEOUT_MS = 30_000;
// The gateway's answer, which names the cause, comes after its timeout and a last attempt.
const ANSWER_GRACE_MS = 15_000;
const MAX_PAGES = 100;
const PAGE_SIZE = 1_000;
const AGAIN = "This page tries again.";

class Problem extends Error {
  /** `status` 0: no answer. `errors`: [{field, message}]. */
  constructor({ title, detail = "", status = 0, code = "", fix = "", errors = [] }) {
    super(detail || title);
    Object.assign(this, { title, detail, status, code, fix, errors });
  }
}

export function get(path, query = {}, signal = undefined) {
  return request("GET", path, { query, signal });
}

/** `query.dry_run`: only return the effects. `revision`: the change is rejected if the resource has
 * changed since. */
export function change(method, path, body, { query = {}, revision = undefined } = {}) {
  return request(method, path, { query, body, revision });
}

/** All pages of a list. */
export async function all(path, query = {}, signal = undefined) {
  const items = [];
  let token = "";
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const answer = await get(path, { page_size: PAGE_SIZE, ...query, page_token: token }, signal);
    items.push(...answer.items);
    token = answer.next_page_token;
    if (!token) break;
  }
  return items;
}

/** The path of a resource from its parts, which may contain any characters. */
export function at(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** An id of the console, so that a repeated request starts no second operation. */
export function newOperationId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function urlOf(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [key, value] of Object.entries(query)) {
    if (value === "" || value == null) continue;
    for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(key, one);
  }
  return url;
}

async function request(method, path, { query, body, revision, signal }) {
  const timeout = AbortSignal.timeout(answerMs(query));
  const headers = { Accept: "application/json", "X-Tidelog-Requested-By": "console" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (revision !== undefined) headers["If-Match"] = `"${revision}"`;
  let response;
  let text;
  try {
    response = await fetch(urlOf(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unanswered(timeout.aborted, method === "GET" ? AGAIN : query.dry_run ? "" : "The change may have been carried out.");
  }
  return parsed(response, text);
}

/** Timeout of an answer. It is longer than that of the gateway, which knows the cause. */
export function answerMs({ timeout_ms: timeoutMs = USUAL_TIMEOUT_MS }) {
  return timeoutMs + ANSWER_GRACE_MS;
}

/** The lines of an answer as objects, as they come. `signal` ends the request. */
export async function* lines(path, query, signal) {
  const headers = { Accept: "application/x-ndjson", "X-Tidelog-Requested-By": "console" };
  let rest = "";
  try {
    const response = await fetch(urlOf(path, query), { headers, signal, cache: "no-store" });
    if (!response.ok) return parsed(response, await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const complete = (rest + part.value).split("\n");
      rest = complete.pop();
      for (const line of complete) yield JSON.parse(line);
    }
  } catch (error) {
    if (signal.aborted || error instanceof Problem) throw error;
    throw unanswered(false);
  }
  return undefined;
}

/** `then`: what follows. */
function unanswered(timedOut, then = "") {
  return new Problem({
    title: timedOut ? "The gateway did not answer in time" : "The gateway does not answer",
    detail: then,
    fix: "Check that tidelog_admin_api runs and is reachable.",
  });
}

function parsed(response, text) {
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    // The answer is not from the gateway but from a proxy.
  }
  if (response.ok && (document !== null || !text)) return document;
  throw new Problem({
    title: `The gateway answered ${response.status}`,
    detail: document === null ? text.slice(0, 300) : "",
    ...(document ?? {}),
    status: response.status,
  });
}

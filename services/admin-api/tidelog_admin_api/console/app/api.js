// The gateway's resources. What goes wrong comes as a `Problem` (RFC 9457), also where no
// gateway answers.
const BASE = new URL("../v1/", document.baseURI);
// As long the gateway asks the cluster for what names no time of its own.
const USUAL_TIMEOUT_MS = 30_000;
// Its answer, which says what was waited for in vain, comes after that: a last try takes its time.
const ANSWER_GRACE_MS = 15_000;
const MAX_PAGES = 100;
const PAGE_SIZE = 1_000;

class Problem extends Error {
  /** `status` 0: there was no answer. `errors`: [{field, message}]. */
  constructor({ title, detail = "", status = 0, code = "", fix = "", errors = [] }) {
    super(detail || title);
    Object.assign(this, { title, detail, status, code, fix, errors });
  }
}

export function get(path, query = {}, signal = undefined) {
  return ask("GET", path, { query, signal });
}

/** `query.dry_run`: what it would do, and nothing more. `revision`: refused where the thing has
 * changed since. */
export function change(method, path, body, { query = {}, revision = undefined } = {}) {
  return ask(method, path, { query, body, revision });
}

/** All pages of a list. */
export async function all(path, query = {}, signal = undefined) {
  const items = [];
  let token = "";
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const asked = { page_size: PAGE_SIZE, ...query, page_token: token };
    const answer = await get(path, asked, signal);
    items.push(...answer.items);
    token = answer.next_page_token;
    if (!token) break;
  }
  return items;
}

/** The path of a resource from its parts, each of which may hold anything. */
export function at(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** Chosen here, so that a request that is sent twice is one operation. */
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

async function ask(method, path, { query, body, revision, signal }) {
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
    throw unanswered(timeout.aborted, method !== "GET" && !query.dry_run);
  }
  return parsed(response, text);
}

/** How long an answer is waited for: longer than the gateway waits, which knows the cause. */
export function answerMs({ timeout_ms: timeoutMs = USUAL_TIMEOUT_MS }) {
  return timeoutMs + ANSWER_GRACE_MS;
}

function unanswered(timedOut, changes) {
  return new Problem({
    title: timedOut ? "The gateway has not answered in time" : "The gateway does not answer",
    detail: changes ? "What was asked for may have been done all the same." : "",
    fix: "Look whether tidelog_admin_api runs and can be reached; this page goes on trying.",
  });
}

function parsed(response, text) {
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    // Something between the browser and the gateway has answered.
  }
  if (response.ok && (document !== null || !text)) return document;
  throw new Problem({
    title: `The gateway answered ${response.status}`,
    detail: document === null ? text.slice(0, 300) : "",
    ...(document ?? {}),
    status: response.status,
  });
}

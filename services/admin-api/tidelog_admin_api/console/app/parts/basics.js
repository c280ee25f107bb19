// Small components that all pages use.
import { html, useEffect, useRef, useState } from "../html.js";
import { clock } from "../format.js";
import { NOT_FOUND } from "../live.js";
import { href } from "../router.js";
import { createStore, useStore } from "../store.js";
import { Icon } from "./icons.js";

/** `tone`: ok, warn, bad, note or empty. The text has the same meaning as the colour. */
export function State({ tone = "", children }) {
  return html`<span class="state ${tone}" title=${typeof children === "string" ? children : undefined}>${children}</span>`;
}

export function Panel({ title, acts, beside, flush = false, children, id = undefined }) {
  return html`<section class="panel" aria-label=${title} id=${id}>
    ${title && html`<header>
      <h2>${title}</h2>
      ${beside}
      ${acts && html`<div class="acts">${acts}</div>`}
    </header>`}
    <div class="body ${flush ? "flush" : ""}">${children}</div>
  </section>`;
}

export function PageHead({ title, crumbs, beside, children }) {
  useEffect(() => {
    document.title = `${title} · Tidelog`;
  }, [title]);
  return html`<div class="page-head">
    ${crumbs && html`<nav class="crumbs" aria-label="Path">${crumbs.map(
      ([name, target], at) => html`${at > 0 && html`<span aria-hidden="true">/</span>`}
        <a href=${target}>${name}</a>`,
    )}</nav>`}
    <h1>${title}</h1>
    ${beside}
    <div class="acts">${children}</div>
  </div>`;
}

export function ProblemNote({ problem }) {
  if (!problem) return null;
  const shown = problem.title === undefined ? { title: String(problem.message ?? problem) } : problem;
  return html`<div class="problem" role="alert">
    <strong>${shown.title}</strong>
    ${shown.detail && html`<p>${shown.detail}</p>`}
    ${shown.errors?.map((one) => html`<p><code>${one.field}</code>: ${one.message}</p>`)}
    ${shown.fix && html`<p class="fix">${shown.fix}</p>`}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p>${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

/** Shown in place of data that is not loaded yet. `of`: the result of `usePolled`. */
export function Waiting({ of: { error, late } }) {
  if (isUnknown(error)) return html`<${Empty} title="Not found">${error.detail}<//>`;
  if (error) return html`<${ProblemNote} problem=${error} />`;
  return html`<${Empty} title="Loading…">${late && "The answer is late; the overview shows the state of the cluster."}<//>`;
}

export function isUnknown(error) {
  return error?.status === NOT_FOUND;
}

/** Shown above data that could not be refreshed: its age and the cause. */
export function Stale({ of: { data, asOfMs, error, late } }) {
  if (!data || !(error || late)) return null;
  return html`<div class="stack">
    <p class="warned" role="status">${`As of ${clock(asOfMs)}`}${error ? "." : "; there has been no answer since."}</p>
    <${ProblemNote} problem=${error} />
  </div>`;
}

/** A short form of `Stale` for a part of a page. */
export function Age({ of: { data, asOfMs, error, late } }) {
  if (!data || !(error || late)) return null;
  return html`<span class="live lost" title=${error?.message}>as of ${clock(asOfMs)}</span>`;
}

/** `of`: the result of `usePolled`. Data is live after the first answer, while no answer is late. */
export function Live({ of: { data, error, late }, still = false, children = "live" }) {
  if (isUnknown(error)) return html`<span class="live lost">not found</span>`;
  if (error || late) return html`<span class="live lost">not up to date, trying again</span>`;
  if (data === null) return html`<span class="live still">connecting</span>`;
  return html`<span class="live ${still ? "still" : ""}">${children}</span>`;
}

export function Figure({ name, value, tone = "", beside, target }) {
  const content = html`<div class="name">${name}</div>
    <div class="value ${tone}">${value}</div>
    ${beside && html`<div class="beside">${beside}</div>`}`;
  return target
    ? html`<a class="figure" href=${target}>${content}</a>`
    : html`<div class="figure">${content}</div>`;
}

export function Facts({ of }) {
  return html`<dl class="facts">${of.map(
    ([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}

/** `part` of `whole` as a bar, also for screen readers. */
export function Progress({ label, part, whole, ended = false }) {
  const percent = whole > 0 ? Math.round((100 * part) / whole) : 0;
  return html`<div class="bar ${ended ? "ended" : ""}" role="progressbar" aria-label=${label}
    aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent}>
    <i style=${{ width: `${percent}%` }}></i>
  </div>`;
}

/** Marks a topic with a single replica of each partition. */
export function Unprotected() {
  return html`<span class="tag" title="Each partition has a single replica: its records are lost with one disk">unprotected</span>`;
}

export function TopicLink({ topic }) {
  return html`<a href=${href(["topics", topic])} title=${topic}>${topic}</a>`;
}

export function PartitionLink({ topic, partition }) {
  const name = `${topic}/${partition}`;
  return html`<a href=${href(["topics", topic, String(partition)])} title=${name}>${name}</a>`;
}

/** Notes about completed actions. */
const notes = createStore([]);
const NOTE_MS = 8_000;
let lastNote = 0;

export function notify(text, link = undefined) {
  const note = { id: (lastNote += 1), text, link };
  notes.set([...notes.get(), note].slice(-4));
  setTimeout(() => forget(note.id), NOTE_MS);
}

function forget(id) {
  notes.set(notes.get().filter((note) => note.id !== id));
}

export function Notes() {
  const shown = useStore(notes);
  return html`<div class="toasts" role="status">${shown.map(
    (note) => html`<div class="toast" key=${note.id}>
      <div>${note.text} ${note.link && html`<a href=${note.link.target} onClick=${() => setTimeout(forget, 0, note.id)}>${note.link.name}</a>`}</div>
      <button class="button quiet compact" aria-label="Dismiss" onClick=${() => forget(note.id)}>
        <${Icon} name="close" />
      </button>
    </div>`,
  )}</div>`;
}

/** A modal dialog. The browser keeps the focus inside and closes the dialog on Escape; then the focus
 * returns to where it was. */
export function Dialog({ title, onClose, narrow = false, footer, children }) {
  const element = useRef(null);
  useEffect(() => {
    const back = document.activeElement;
    element.current.showModal();
    return () => back?.focus?.();
  }, []);
  return html`<dialog ref=${element} class=${narrow ? "narrow" : ""} aria-label=${title}
    onClose=${onClose}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}>
    <header>
      <h2>${title}</h2>
      <button class="button quiet compact" type="button" aria-label="Close" onClick=${onClose}>
        <${Icon} name="close" />
      </button>
    </header>
    <div class="content">${children}</div>
    ${footer && html`<footer>${footer}</footer>`}
  </dialog>`;
}

let lastField = 0;

/** A control with its label. `hint` and `wrong` describe it, and are no part of its name. */
export function Field({ label, hint, wrong, children }) {
  const place = useRef(null);
  const [id] = useState(() => `field-${(lastField += 1)}`);
  const described = [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(" ");
  // The control may be inside a component, so that only the document has it.
  useEffect(() => {
    const control = place.current.querySelector("input, select, textarea");
    if (described) control.setAttribute("aria-describedby", described);
    else control.removeAttribute("aria-describedby");
    control.setAttribute("aria-invalid", String(Boolean(wrong)));
  });
  return html`<div class="field" ref=${place}>
    <label><span>${label}</span>${children}</label>
    ${hint && html`<span class="hint" id=${`${id}-hint`}>${hint}</span>`}
    ${wrong && html`<span class="wrong" id=${`${id}-wrong`} role="alert">${wrong}</span>`}
  </div>`;
}

// How everything is changed: what it would do is asked for first and shown, and only then done.
import { html, useEffect, useState } from "../html.js";
import { Dialog, Empty, Field, ProblemNote } from "./basics.js";

/**
 * `plan()`: asks for the dry run; `show(plan)`: what it would do; `refuse(plan)`: a sentence for
 * why it is not to be done, or nothing; `run(plan)`: does it; `done(answer)`: after that. `confirm`:
 * a word that has to be typed first. `form`: fields above; while `ready` is false there is no plan.
 * A change of `subject` makes an old plan void.
 */
export function Act(props) {
  const { title, verb, danger = false, confirm = "", form, ready = true, subject = "" } = props;
  const { plan, show, refuse, run, done, onClose, narrow = false } = props;
  const [planned, setPlanned] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState("");
  const [typed, setTyped] = useState("");
  const needsStep = form !== undefined;
  const current = planned?.subject === subject ? planned.plan : null;
  const why = current && refuse?.(current);

  async function look() {
    setBusy("plan");
    setProblem(null);
    try {
      setPlanned({ subject, plan: await plan() });
    } catch (error) {
      setProblem(error);
    }
    setBusy("");
  }

  async function carryOut() {
    setBusy("run");
    setProblem(null);
    try {
      done(await run(current));
      onClose();
    } catch (error) {
      setProblem(error);
      // What was shown may no longer be so.
      setPlanned(null);
      setBusy("");
    }
  }

  useEffect(() => {
    if (!needsStep) look();
  }, []);

  const canRun = current !== null && !why && busy === "" && (!confirm || typed === confirm);
  const submit = (event) => {
    event.preventDefault();
    if (canRun) carryOut();
    else if (current === null && ready && busy === "") look();
  };
  const primary = current !== null || !needsStep;
  const footer = html`
    <span class="asks">${primary ? "Nothing has changed yet." : "The next step only shows what it would do."}</span>
    <button class="button" type="button" onClick=${onClose}>Cancel</button>
    ${primary && (current !== null || problem === null)
      ? html`<button class="button primary ${danger ? "danger" : ""}" form="act" disabled=${!canRun}>
          ${busy === "run" ? "Working…" : verb}
        </button>`
      : html`<button class="button primary" form="act" disabled=${!ready || busy !== ""}>
          ${busy === "plan" ? "Looking…" : needsStep ? "Show what it would do" : "Look again"}
        </button>`}
  `;
  return html`<${Dialog} title=${title} onClose=${onClose} narrow=${narrow} footer=${footer}>
    <form id="act" class="stack" onSubmit=${submit}>
      ${form}
      ${busy === "plan" && current === null && html`<${Empty} title="Looking what it would do…" />`}
      ${current !== null && html`<section aria-label="What it would do" class="stack" data-plan>${show(current)}</section>`}
      ${why && html`<p class="warned" role="alert">${why}</p>`}
      ${current !== null && !why && confirm && html`<${Field} label=${`Type ${confirm} to confirm`}>
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)}
          autocomplete="off" spellcheck=${false} />
      <//>`}
      <${ProblemNote} problem=${problem} />
    </form>
  <//>`;
}

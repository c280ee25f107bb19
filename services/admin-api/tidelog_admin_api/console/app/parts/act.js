// The dialog of all changes: it shows the dry run first, and then carries out the change.
import { html, useEffect, useState } from "../html.js";
import { Dialog, Empty, Field, ProblemNote } from "./basics.js";

/**
 * `plan()`: requests the dry run; `show(plan)`: shows it; `reject(plan)`: returns a sentence if the
 * change is useless; `run(plan)`: carries it out; `done(answer)`: is called after that. `confirm`: a
 * text that has to be typed first. `form`: fields; while `ready` is false there is no plan. A change
 * of `subject` invalidates the plan.
 */
export function Act(props) {
  const { title, verb, danger = false, confirm = "", form, ready = true, subject = "" } = props;
  const { plan, show, reject, run, done, onClose, narrow = false } = props;
  const [planned, setPlanned] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState("");
  const [typed, setTyped] = useState("");
  const needsStep = form !== undefined;
  const current = planned?.subject === subject ? planned.plan : null;
  const why = current && reject?.(current);

  async function check() {
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
      // The plan may be out of date.
      setPlanned(null);
      setBusy("");
    }
  }

  useEffect(() => {
    if (!needsStep) check();
  }, []);

  const canRun = current !== null && !why && busy === "" && (!confirm || typed === confirm);
  const submit = (event) => {
    event.preventDefault();
    if (canRun) carryOut();
    else if (current === null && ready && busy === "") check();
  };
  const primary = current !== null || !needsStep;
  const footer = html`
    <span class="asks">${primary ? "Nothing has changed yet." : "The next step only shows the effects."}</span>
    <button class="button" type="button" onClick=${onClose}>Cancel</button>
    ${primary && (current !== null || problem === null)
      ? html`<button class="button primary ${danger ? "danger" : ""}" form="act" disabled=${!canRun}>
          ${busy === "run" ? "Working…" : verb}
        </button>`
      : html`<button class="button primary" form="act" disabled=${!ready || busy !== ""}>
          ${busy === "plan" ? "Checking…" : needsStep ? "Show the effects" : "Check again"}
        </button>`}
  `;
  return html`<${Dialog} title=${title} onClose=${onClose} narrow=${narrow} footer=${footer}>
    <form id="act" class="stack" onSubmit=${submit}>
      ${form}
      ${busy === "plan" && current === null && html`<${Empty} title="Checking the effects…" />`}
      ${current !== null && html`<section aria-label="Effects" class="stack" data-plan>${show(current)}</section>`}
      ${why && html`<p class="warned" role="alert">${why}</p>`}
      ${current !== null && !why && confirm && html`<${Field} label=${`Type ${confirm} to confirm`}>
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)}
          autocomplete="off" spellcheck=${false} />
      <//>`}
      <${ProblemNote} problem=${problem} />
    </form>
  <//>`;
}

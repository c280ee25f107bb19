// The findings of explain: problems, causes and next steps.
import { Fragment, html, useState } from "../html.js";
import { href } from "../router.js";
import { plural, sentence, words } from "../format.js";
import { inOrderOfSeverity, toneOf } from "../verdict.js";
import { Panel, PartitionLink, State } from "./basics.js";

const MAX_EVIDENCE = 4;
const MAX_SHOWN = 12;

/** A panel whose title shows whether a finding is a fault. */
export function FindingsPanel({ findings, beside }) {
  const isFault = findings.some((finding) => finding.severity !== "info");
  return html`<${Panel} title=${isFault ? "Problems and causes" : "Notes"} flush
    beside=${html`<span class="count">${findings.length}</span>${beside}`}>
    <${Findings} findings=${findings} />
  <//>`;
}

function Findings({ findings }) {
  const [all, setAll] = useState(false);
  const ordered = inOrderOfSeverity(findings);
  const shown = all ? ordered : ordered.slice(0, MAX_SHOWN);
  return html`${shown.map((finding) => html`<${Finding} key=${keyOf(finding)} finding=${finding} />`)}
    ${ordered.length > shown.length && html`<div class="finding">
      <button class="button" onClick=${() => setAll(true)}>Show ${ordered.length - shown.length} more</button>
    </div>`}`;
}

function keyOf(finding) {
  return [finding.cause, finding.topic, finding.partition, finding.broker, finding.summary].join("|");
}

function Finding({ finding }) {
  const tone = toneOf(finding.severity);
  return html`<article class="finding">
    <div class="head"><${State} tone=${tone}>${finding.severity}<//><p class="grow">${sentence(finding.summary)}</p>
      <span class="faint small nowrap" title="Name of the cause, for programs">${words(finding.cause)}</span></div>
    ${finding.evidence?.length > 0 && html`<ul class="why">
      ${finding.evidence.slice(0, MAX_EVIDENCE).map((line) => html`<li>${line}</li>`)}
      ${finding.because?.length > 0 && html`<li>caused by ${finding.because.join(", ")}</li>`}
    </ul>`}
    ${finding.next_step && html`<p class="next"><b>Next step</b><span>${finding.next_step}</span></p>`}
    <${Places} finding=${finding} />
  </article>`;
}

function Places({ finding }) {
  if (finding.topic && finding.partition >= 0) {
    return html`<p class="next small"><span class="faint">Affected</span>
      <${PartitionLink} topic=${finding.topic} partition=${finding.partition} /></p>`;
  }
  const named = (finding.partitions ?? []).slice(0, 6);
  if (!named.length) return null;
  const more = finding.partition_count - named.length;
  return html`<p class="next small"><span class="faint">Affected</span><span>${named.map((name, at) => {
    const cut = name.lastIndexOf("/");
    return html`<${Fragment} key=${name}>${at > 0 && ", "}<a href=${href(["topics", name.slice(0, cut), name.slice(cut + 1)])}>${name}</a><//>`;
  })}${more > 0 && ` and ${plural(more, "more", "more")}`}</span></p>`;
}

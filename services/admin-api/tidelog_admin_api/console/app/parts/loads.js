// Leaders and replicas of each broker, compared with an even share.
import { html } from "../html.js";
import { number } from "../format.js";
import { isMissed } from "../verdict.js";

export function Loads({ brokers }) {
  const holding = brokers.filter((broker) => broker.replicas > 0 || broker.status !== "gone");
  const most = Math.max(1, ...holding.map((broker) => broker.replicas));
  const sharing = holding.filter((broker) => broker.status === "running" && !broker.removed && !broker.not_added);
  const leaders = holding.reduce((sum, broker) => sum + broker.leaders, 0);
  const even = sharing.length ? leaders / sharing.length : 0;
  return html`<div class="loads" role="list" aria-label="Leaders and replicas of each broker">
      ${holding.map((broker) => html`<${Load} key=${broker.broker_id} broker=${broker} most=${most} even=${even} />`)}
    </div>
    <div class="legend">
      <span><i class="leader"></i>leads</span><span><i></i>follows</span>
      <span><i class="tick"></i>even share of leaders</span>
    </div>`;
}

function Load({ broker, most, even }) {
  const percent = (part) => ({ width: `${(100 * part) / most}%` });
  return html`<div class="load ${isMissed(broker) ? "gone" : ""}" role="listitem">
    <span>Broker ${broker.broker_id}</span>
    <div class="bar" aria-hidden="true">
      <i class="light" style=${percent(broker.replicas)}></i>
      <i style=${percent(broker.leaders)}></i>
      <b style=${{ left: `${(100 * even) / most}%` }}></b>
    </div>
    <span class="text">${isMissed(broker) ? `gone, holds ${number(broker.replicas)}` : `leads ${number(broker.leaders)} of ${number(broker.replicas)}`}</span>
  </div>`;
}

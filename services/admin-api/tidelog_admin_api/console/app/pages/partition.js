// One partition: its replicas as bars of LEO against HW, its lag over time, and its state changes.
import { html, useMemo, useState } from "../html.js";
import { at, change, get } from "../api.js";
import { cautionOf } from "../broker_rules.js";
import { brokers, bytes, duration, number } from "../format.js";
import { useHistory } from "../history.js";
import { usePolled } from "../live.js";
import { overview } from "../overview_store.js";
import { href } from "../router.js";
import { useStore } from "../store.js";
import { Act } from "../parts/act.js";
import { Age, Facts, Live, PageHead, Panel, Stale, State, Waiting, notify } from "../parts/basics.js";
import { BrokerChoice, useBrokers } from "../parts/broker_choice.js";
import { COUNT, LINE_COLOURS } from "../parts/charts.js";
import { FindingsPanel } from "../parts/findings.js";
import { HistoryCharts } from "../parts/history_charts.js";
import { Lanes } from "../parts/lanes.js";
import { MovePartitions } from "../parts/move_partitions.js";
import { RecoverAct } from "../parts/recover.js";
import { Missing, Timeline } from "../parts/timeline.js";
import { healthOf, isLed, isReported, replicaState } from "../verdict.js";

const EVERY_MS = 1_000;
const EVENTS_EVERY_MS = 2_000;
const EXPLAIN_EVERY_MS = 3_000;
const MAX_EVENTS = 200;

export function Partition({ topic, partition }) {
  const path = at("topics", topic, "partitions", partition);
  const name = `${topic}/${partition}`;
  const [act, setAct] = useState("");
  const known = usePolled((signal) => get(path, {}, signal), path, EVERY_MS);
  const { data, refresh } = known;
  const close = () => {
    setAct("");
    refresh();
  };
  const [tone, word] = data ? healthOf(data) : ["", ""];
  return html`<${PageHead} title=${name} crumbs=${[["Topics", href(["topics"])], [topic, href(["topics", topic])]]}
      beside=${html`${data && html`<${State} tone=${tone}>${word}<//>`}<${Live} of=${known} />`}>
      <a class="button" href=${href(["records"], { topic, partition })}>Show records</a>
      ${data && html`<button class="button" onClick=${() => setAct("move")}>Move replicas…</button>`}
      ${data && isLed(data) && html`<button class="button" data-first-act onClick=${() => setAct("leader")}>Change leader…</button>`}
      ${data && !isLed(data) && html`<button class="button danger" data-first-act onClick=${() => setAct("recover")}>Recover…</button>`}
    <//>
    ${data ? html`<${Shown} topic=${topic} partition=${data} known=${known} />` : html`<${Waiting} of=${known} />`}
    ${data && act === "leader" && html`<${MoveLeader} topic=${topic} partition=${data} onClose=${close} />`}
    ${act === "move" && html`<${MovePartitions} topic=${topic} partition=${partition} onClose=${close} />`}
    ${act === "recover" && html`<${RecoverAct} topic=${topic} partition=${partition} onClose=${close} />`}`;
}

function Shown({ topic, partition, known }) {
  const scope = { topic, partition: partition.partition };
  const name = `${topic}/${partition.partition}`;
  const events = usePolled((signal) => get("events", { ...scope, limit: MAX_EVENTS }, signal), name, EVENTS_EVERY_MS);
  const why = usePolled((signal) => get("explain", scope, signal), name, EXPLAIN_EVERY_MS);
  const newest = useMemo(() => newestFirst(events.data?.items ?? []), [events.data]);
  return html`<div class="stack">
    <${Stale} of=${known} />
    ${why.data?.findings.length > 0 && html`<${FindingsPanel} findings=${why.data.findings} beside=${html`<${Age} of=${why} />`} />`}
    <${Panel}><${Facts} of=${facts(partition)} /><//>
    <div class="split">
      <${Panel} title="Replicas" beside=${html`<span class="faint small">log end offset (LEO) and high watermark (HW)</span>`}>
        <${Replicas} partition=${partition} />
      <//>
      <${LagOverTime} topic=${topic} partition=${partition} />
    </div>
    <${Panel} title="Leader and ISR over time"><${Lanes} events=${newest} partition=${partition} /><//>
    <${Panel} title="State changes" flush beside=${html`<span class="faint small">the newest first</span><${Age} of=${events} />`}>
      ${events.data
        ? html`<${Missing} list=${events.data} /><${Timeline} events=${newest} about=${false} empty="No service has a state change of this partition." />`
        : html`<${Waiting} of=${events} />`}
    <//>
  </div>`;
}

function newestFirst(events) {
  return events.map((event) => ({ ...event, at: event.time_ms })).reverse();
}

function facts(p) {
  return [
    ["Leader", !isLed(p) ? "none" : `Broker ${p.leader}`],
    ["Leader epoch", number(p.leader_epoch)],
    ["In sync", brokers(p.isr)],
    ["Min ISR", number(p.min_isr)],
    ["High watermark", number(p.log?.high_watermark)],
    ["Log end offset", number(p.log?.log_end_offset)],
    ["Eligible set", brokers(p.eligible_leader_replicas)],
    ["Moving", p.moving_operation ? html`<a href=${href(["moves", p.moving_operation])}>${movingWords(p)}</a>` : "no"],
  ];
}

function movingWords(partition) {
  const added = partition.adding_replicas.length ? `to ${brokers(partition.adding_replicas)}` : "";
  const left = partition.leaving_replicas.length ? `off ${brokers(partition.leaving_replicas)}` : "";
  return [added, left].filter(Boolean).join(", ") || "other order";
}

/** The high watermark of the leader. Without a leader, the highest that any replica knows. */
function watermarkOf(partition) {
  const known = partition.details.map((replica) => replica.high_watermark ?? 0);
  return partition.log?.high_watermark ?? Math.max(0, ...known);
}

function Replicas({ partition }) {
  const known = useStore(overview).data?.brokers ?? [];
  const reported = partition.details.filter(isReported);
  const ends = reported.map((replica) => replica.log_end_offset);
  const high = Math.max(1, ...ends);
  const low = Math.min(...reported.map((replica) => replica.log_start_offset ?? 0), high);
  const start = scaleStart(low, high, Math.min(...ends, watermarkOf(partition)));
  const part = (offset) => `${Math.max(0, Math.min(100, (100 * (offset - start)) / Math.max(1, high - start)))}%`;
  return html`<div class="replicas">
    ${partition.details.map((replica) => html`<${Replica} key=${replica.broker_id} replica=${replica} partition=${partition} part=${part}
      broker=${known.find((broker) => broker.broker_id === replica.broker_id)} />`)}
    <div>
      <div class="scale"><span>${number(start)}</span><span>${number(high)}</span></div>
      <div class="legend">
        <span><i class="whole"></i>committed</span><span><i></i>not committed yet</span>
        <span><i class="warn"></i>out of sync</span><span><i class="tick"></i>high watermark</span>
        ${start > low && html`<span>the scale begins at ${number(start)}, the log at ${number(low)}</span>`}
      </div>
    </div>
  </div>`;
}

// The scale begins near the ends: a lag of a thousand would not be visible in a log of a million.
function scaleStart(low, high, lowestEnd) {
  const spread = Math.max(high - lowestEnd, (high - low) / 50, 20);
  return Math.max(low, Math.floor(high - 4 * spread));
}

function Replica({ replica, broker, partition, part }) {
  const isAway = !isReported(replica);
  const watermark = watermarkOf(partition);
  const lag = replica.lag_records ?? 0;
  const [tone, word] = replicaState(replica, broker);
  const text = isAway
    ? replica.problem || "not reported"
    : `LEO ${number(replica.log_end_offset)}${lag > 0 ? `, ${number(lag)} behind` : ""}${replica.lag_ms > 0 && lag > 0 ? ` (${duration(replica.lag_ms)})` : ""}`;
  const label = `Broker ${replica.broker_id}: ${word}, ${text}; high watermark ${number(watermark)}`;
  return html`<div class="replica ${isAway ? "away" : ""} ${!isAway && !replica.in_sync ? "lagging" : ""}">
    <div class="who"><strong>Broker ${replica.broker_id}</strong><${State} tone=${tone}>${word}<//>
      ${replica.moving && html`<span class="tag">${replica.moving}</span>`}
      ${replica.size_bytes != null && html`<span class="faint small">${bytes(replica.size_bytes)}</span>`}
      <span class="text">${text}</span></div>
    ${!isAway && replica.problem && html`<p class="small dim">${replica.problem}</p>`}
    <div class="track" role="img" aria-label=${label}>
      ${!isAway && html`<i class="beyond" style=${{ width: part(replica.log_end_offset) }}></i>
        <i class="committed" style=${{ width: part(Math.min(replica.log_end_offset, watermark)) }}></i>
        <b style=${{ left: part(watermark) }}></b>`}
    </div>
  </div>`;
}

function LagOverTime({ topic, partition }) {
  const lines = partition.replicas.map((broker, n) => ({ name: `Broker ${broker}`, of: "lag_records", broker, colour: LINE_COLOURS[n % LINE_COLOURS.length] }));
  const charts = [{ title: "Lag of each follower in records", unit: COUNT, lines, single: true }];
  return html`<${HistoryCharts} title="Lag over time" of=${useHistory({ topic, partition: partition.partition })} charts=${charts}
    beside=${html`<span class="faint small">records that each follower is behind</span>`} />`;
}

function MoveLeader({ topic, partition, onClose }) {
  const [leader, setLeader] = useState(partition.isr.find((broker) => broker !== partition.leader) ?? null);
  const known = useBrokers();
  const others = (known.data ?? []).filter((broker) => broker.broker_id !== partition.leader && partition.replicas.includes(broker.broker_id));
  const body = { moves: [{ topic, partition: partition.partition, leader }] };
  const send = (query) => change("POST", "leaders/move", body, { query });
  const wrongOf = (answer) => answer.items.find((item) => item.error)?.error.message;
  const form = html`<p>Broker ${partition.leader} leads now. The new leader becomes the preferred replica, so that it stays the leader.</p>
    ${known.data
      ? html`<${BrokerChoice} isSingle legend="New leader" brokers=${others} chosen=${[leader]} onChange=${setLeader} noteOf=${cautionOf}
          blockedOf=${(broker) => (partition.isr.includes(broker.broker_id) ? "" : "out of sync: can lead once it is in sync")} />`
      : html`<${Waiting} of=${known} />`}`;
  return html`<${Act} title=${`Change the leader of ${topic}/${partition.partition}`} verb="Transfer leadership" narrow ready=${leader !== null} subject=${String(leader)}
    form=${form}
    plan=${() => send({ dry_run: true })}
    show=${(plan) => html`<p>Broker <strong>${leader}</strong> would lead instead of broker ${partition.leader}${plan.items.length ? "" : "; it leads already"}.</p>`}
    reject=${wrongOf}
    run=${() => send({})}
    done=${(answer) => notify(wrongOf(answer) ?? `Broker ${leader} leads ${topic}/${partition.partition}.`)}
    onClose=${onClose} />`;
}

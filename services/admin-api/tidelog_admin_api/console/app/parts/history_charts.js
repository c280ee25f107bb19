// Small charts of the history beside each other, which show the same time.
import { html, useMemo } from "../html.js";
import { clock } from "../format.js";
import { createStore, useStore } from "../store.js";
import { Age, Empty, Panel, Waiting } from "./basics.js";
import { LineChart, TALL_PX } from "./charts.js";

const KEY = "tidelog.window";
const MINUTE_MS = 60_000;
const WINDOWS = [["5 min", 5 * MINUTE_MS], ["15 min", 15 * MINUTE_MS], ["1 h", 60 * MINUTE_MS]];
export const MAX_LINES = 8;

/** The shown time in milliseconds, the same on all pages. */
const shownMs = createStore(stored());
shownMs.subscribe((chosen) => {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Without storage the choice is lost when the page is closed.
  }
});

function stored() {
  try {
    const chosen = Number(localStorage.getItem(KEY));
    if (WINDOWS.some(([, ms]) => ms === chosen)) return chosen;
  } catch {
    // As above.
  }
  return WINDOWS[1][1];
}

/** `of`: the result of `useHistory`; `charts`: [{title, unit, lines: [{name, of, broker, colour}]}],
 * where `of` and `broker` name a series. */
export function HistoryCharts({ title = "Over time", of: known, charts, beside }) {
  const windowMs = useStore(shownMs);
  const { data } = known;
  const shown = useMemo(() => data && within(data, windowMs), [data, windowMs]);
  return html`<${Panel} title=${title} beside=${html`${beside}${shown && html`<${Since} of=${shown} />`}<${Age} of=${known} />`} acts=${html`<${Windows} />`}>
    ${!shown ? html`<${Waiting} of=${known} />`
      : shown.times.length === 0 ? html`<${Empty} title="No sample has been taken yet." />`
        : html`<div class="strip">${charts.map((chart) => html`<${HistoryChart} key=${chart.title} chart=${chart} shown=${shown} />`)}</div>`}
  <//>`;
}

function Windows() {
  const windowMs = useStore(shownMs);
  return html`<div class="windows" role="group" aria-label="Shown time">${WINDOWS.map(([name, ms]) => html`
    <button key=${name} type="button" aria-pressed=${ms === windowMs} onClick=${() => shownMs.set(ms)}>${name}</button>`)}</div>`;
}

/** Samples begin when the gateway does. */
function Since({ of: { beganMs, fromMs } }) {
  return beganMs > fromMs ? html`<span class="faint small">since ${clock(beganMs)}</span>` : null;
}

function HistoryChart({ chart: { title, unit, lines, single }, shown }) {
  const key = lines.map((line) => `${line.of} ${line.broker ?? ""}`).join();
  const drawn = useMemo(
    () => lines.map(({ name, of, broker = null, colour }) => ({
      name,
      colour,
      values: shown.series.find((one) => one.name === of && one.broker === broker)?.values ?? shown.times.map(() => null),
    })),
    [shown, key],
  );
  return html`<figure class="small-chart">
    ${!single && html`<figcaption>${title}</figcaption>`}
    <${LineChart} label=${title} times=${shown.times} lines=${drawn} unit=${unit} span=${shown.span} height=${single ? TALL_PX : undefined} />
  </figure>`;
}

/** The points of the last `windowMs`, and one before them, from which the line comes. Times in
 * seconds, as uPlot has them. */
export function within({ timesMs, series, beganMs, nowMs }, windowMs) {
  const fromMs = nowMs - windowMs;
  const later = timesMs.findIndex((timeMs) => timeMs >= fromMs);
  const first = later < 0 ? timesMs.length : Math.max(0, later - 1);
  return {
    times: timesMs.slice(first).map((timeMs) => timeMs / 1000),
    series: series.map((one) => ({ ...one, values: one.values.slice(first) })),
    span: [fromMs / 1000, nowMs / 1000],
    beganMs,
    fromMs,
  };
}

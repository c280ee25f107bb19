// Line icons, 16 by 16, in the colour of their text.
import { html } from "../html.js";

const PATHS = {
  overview: "M2 9.5h3l2-6 3 9 2-5h2",
  topics: "M3 3.5h10M3 8h10M3 12.5h10",
  brokers: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  moves: "M2 5.5h10m-3-3 3 3-3 3M14 11.5H6",
  events: "M8 4v4l2.5 1.5M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  records: "M4 2h6l3 3v9H4zM10 2v3h3M6.5 8.5h4M6.5 11h4",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6z",
  system: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 2v12",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5l3.2 3.2L13 5",
  alert: "M8 2.2 14.5 13.5h-13zM8 6.5v3M8 11.6h.01",
  help: "M6 6a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1V9.5M8 12h.01M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z",
  plus: "M8 3v10M3 8h10",
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5"
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    <path d=${PATHS[name]} />
  </svg>`;
}

// The entry point of the console: shows the page of the address within its frame.
import { html, render } from "./html.js";
import { listenForKeys } from "./keys.js";
import { followOverview } from "./overview_store.js";
import { route } from "./router.js";
import { useStore } from "./store.js";
import { Empty, PageHead } from "./parts/basics.js";
import { Shell } from "./parts/shell.js";
import { Brokers } from "./pages/brokers.js";
import { Events } from "./pages/events.js";
import { Moves } from "./pages/moves.js";
import { Operation } from "./pages/operation.js";
import { Overview } from "./pages/overview.js";
import { Partition } from "./pages/partition.js";
import { RecordPage } from "./pages/record.js";
import { Records } from "./pages/records.js";
import { Topic } from "./pages/topic.js";
import { Topics } from "./pages/topics.js";

function App() {
  const { page, parts, query } = useStore(route);
  const place = [page, ...parts].join("/");
  return html`<${Shell} page=${page} place=${place}>${shown(page, parts, query)}<//>`;
}

// Maximum number of parts of an address after the name of its page.
const MAX_PARTS = { topics: 4, moves: 1 };

function shown(page, parts, query) {
  if (parts.length > (MAX_PARTS[page] ?? 0)) return html`<${NoSuchPage} />`;
  if (page === "overview") return html`<${Overview} />`;
  if (page === "topics") {
    if (parts.length === 0) return html`<${Topics} query=${query} />`;
    if (parts.length === 1) return html`<${Topic} key=${parts[0]} topic=${parts[0]} query=${query} />`;
    if (!/^\d{1,10}$/.test(parts[1])) return html`<${NoSuchPage} />`;
    if (parts.length > 2) {
      if (parts[2] !== "records" || !/^\d{1,16}$/.test(parts[3] ?? "")) return html`<${NoSuchPage} />`;
      return html`<${RecordPage} key=${parts.join("/")} topic=${parts[0]} partition=${Number(parts[1])} offset=${Number(parts[3])} />`;
    }
    return html`<${Partition} key=${parts.join("/")} topic=${parts[0]} partition=${Number(parts[1])} />`;
  }
  if (page === "brokers") return html`<${Brokers} />`;
  if (page === "moves") {
    return parts.length ? html`<${Operation} key=${parts[0]} id=${parts[0]} />` : html`<${Moves} />`;
  }
  if (page === "events") return html`<${Events} query=${query} />`;
  if (page === "records") return html`<${Records} query=${query} />`;
  return html`<${NoSuchPage} />`;
}

function NoSuchPage() {
  return html`<${PageHead} title="There is no such page" /><${Empty} title="Choose a page of the navigation; ? shows the keys." />`;
}

listenForKeys();
followOverview();
render(html`<${App} />`, document.getElementById("app"));

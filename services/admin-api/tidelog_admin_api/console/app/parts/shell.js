// The frame of every page: navigation, state of the cluster, and shortcuts.
import { html, useEffect, useRef } from "../html.js";
import { HELP, PAGES, helpOpen } from "../keys.js";
import { overview } from "../overview_store.js";
import { href } from "../router.js";
import { useStore } from "../store.js";
import { nextTheme, theme } from "../theme.js";
import { isMissed, verdict } from "../verdict.js";
import { Dialog, Notes, State } from "./basics.js";
import { Icon } from "./icons.js";

const THEME_ICONS = { system: "system", light: "sun", dark: "moon" };

export function Shell({ page, place, children }) {
  const main = useRef(null);
  const first = useRef(true);
  const isHelpOpen = useStore(helpOpen);
  // After a change of page, the focus is on its content.
  useEffect(() => {
    if (!first.current) {
      main.current.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
    first.current = false;
  }, [place]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <${Side} page=${page} />
    <main ref=${main} id="main" tabindex="-1">${children}</main>
    <${Notes} />
    ${isHelpOpen && html`<${Help} />`}
  </div>`;
}

function Side({ page }) {
  const known = useStore(overview);
  const { data } = known;
  const chosen = useStore(theme);
  return html`<header class="side">
    <a class="brand" href=${href(["overview"])}><img src="icon.svg" alt="" />Tidelog</a>
    <nav aria-label="Pages">${PAGES.map(
      (one) => html`<a key=${one.page} href=${href([one.page])}
        aria-current=${one.page === page ? "page" : undefined}>
        <${Icon} name=${one.page} />${one.name}<${Count} page=${one.page} data=${data} />
      </a>`,
    )}</nav>
    <div class="side-foot">
      <${Standing} of=${known} />
      ${data && html`<dl>
        <dt>Cluster</dt><dd title=${data.cluster_id}>${data.cluster_id || "not known"}</dd>
        <dt>Controller</dt><dd>${data.controller ? `${data.controller.controller_id} · ${data.controller.address}` : "none active"}</dd>
      </dl>`}
      <div class="side-tools">
        <button class="button quiet compact" onClick=${nextTheme} title="Theme (d)"
          aria-label=${`Theme: ${chosen}. Change it`}>
          <${Icon} name=${THEME_ICONS[chosen]} /><span class="only-wide">${chosen}</span>
        </button>
        <button class="button quiet compact" onClick=${() => helpOpen.set(true)} title="Keys (?)"
          aria-label="Keyboard shortcuts"><${Icon} name="help" /><span class="only-wide">keys</span></button>
        <a class="button quiet compact only-wide" href="../docs" title="The REST API, with examples">REST API</a>
      </div>
    </div>
  </header>`;
}

function Standing({ of: { data, error, late } }) {
  if (error) return html`<div role="status"><${State} tone="bad">Gateway unreachable<//></div>`;
  if (late) return html`<div role="status"><${State} tone="bad">Gateway does not answer<//></div>`;
  const { tone, short } = verdict(data);
  return html`<div role="status"><a href=${href(["overview"])}><${State} tone=${tone}>${short}<//></a></div>`;
}

function Count({ page, data }) {
  if (!data) return null;
  const gone = data.brokers.filter(isMissed).length;
  const running = data.operations.length;
  if (page === "brokers" && gone) {
    return html`<span class="count bad"><span aria-hidden="true">${gone}</span><span class="hidden-text">${gone} gone</span></span>`;
  }
  if (page === "moves" && running) {
    return html`<span class="count note"><span aria-hidden="true">${running}</span><span class="hidden-text">${running} running</span></span>`;
  }
  return null;
}

function Help() {
  return html`<${Dialog} title="Keys" narrow onClose=${() => helpOpen.set(false)}>
    <div class="keys">${HELP.map(({ keys, does }) => html`
      <div>${keys.map((key, at) => html`${at > 0 && " "}<kbd>${key}</kbd>`)}</div><div>${does}</div>
    `)}</div>
    <p><a href="../docs">REST API</a></p>
  <//>`;
}

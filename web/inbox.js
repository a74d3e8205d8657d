// The inbox: pending gates of all sessions.

import { html, useContext, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { api, follow } from './api.js';
import { GateView, SignerContext, decision, kindOf } from './gate.js';
import { exact } from './highlight.js';
import { elements, members } from './json.js';
import { ago, shortId } from './text.js';
import { Badge, Command, Empty, ErrorNote, PageHead, toast, tone, useKeys } from './ui.js';

/** @typedef {import('./types.js').ShownGate} ShownGate */

/** Reads pending gates with their exact bytes. @param {{ session?: string }} [query] @returns {Promise<ShownGate[]>} */
export async function loadGates(query = {}) {
  const text = await api.text('/api/gates', { query });
  return elements(members(text).get('gates') ?? '[]').map((raw) => ({ raw, gate: JSON.parse(raw) }));
}

/** How often the inbox looks again, in case an event was missed. */
const INTERVAL = 10_000;

/**
 * The pending gates, live.
 * @returns {{ gates: ShownGate[] | null, error: Error | null, reload: () => void, drop: (ids: string[]) => void }}
 */
export function useGates() {
  const [gates, setGates] = useState(/** @type {ShownGate[] | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const load = useRef(() => {});
  useEffect(() => {
    let running = false;
    let again = false;
    load.current = async () => {
      if (running) { again = true; return; }
      running = true;
      try {
        do {
          again = false;
          const loaded = await loadGates();
          setGates((old) => (old && old.length === loaded.length && old.every((it, i) => it.raw === loaded[i].raw) ? old : loaded));
          setError(null);
        } while (again);
      } catch (problem) {
        setError(/** @type {Error} */ (problem));
      } finally {
        running = false;
      }
    };
    load.current();
    const timer = setInterval(() => load.current(), INTERVAL);
    const types = 'decision_gate,decision_gate_resolved,decision_gate_expired,decision_gate_withdrawn';
    const stop = follow(api.address('/api/events', { query: { types } }), () => load.current());
    return () => { clearInterval(timer); stop(); };
  }, []);
  const drop = (/** @type {string[]} */ ids) => setGates((old) => old?.filter((it) => !ids.includes(it.gate.id)) ?? null);
  return { gates, error, reload: () => load.current(), drop };
}

/**
 * @param {{ id: string, inbox: ReturnType<typeof useGates>, keyState: import('./app.js').KeyState }} props
 */
export function Inbox({ id, inbox, keyState }) {
  const { gates, error, drop, reload } = inbox;
  const signer = useContext(SignerContext);
  const [query, setQuery] = useState('');
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [busy, setBusy] = useState(false);
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const view = useRef(/** @type {any} */ (null));

  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = (gates ?? []).filter(({ gate, raw }) => {
    const text = (gate.title + raw).toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const index = Math.max(0, shown.findIndex((it) => it.gate.id === id));
  const current = shown[index];
  const open = (/** @type {number} */ at) => {
    const next = shown[Math.max(0, Math.min(shown.length - 1, at))];
    if (next) location.hash = `#/inbox/${encodeURIComponent(next.gate.id)}`;
  };
  /** Opens the next or previous gate. When keys follow fast, the address is ahead of the page. */
  const move = (/** @type {number} */ step) => {
    const opened = decodeURIComponent(location.hash.split('/')[2] ?? '');
    open(shown.findIndex((it) => it.gate.id === opened) + step);
  };
  const toggle = (/** @type {string} */ gate) => setChosen((old) => {
    const next = new Set(old);
    if (!next.delete(gate)) next.add(gate);
    return next;
  });
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    a: () => view.current?.approve(),
    d: () => view.current?.deny(),
    e: () => view.current?.edit(),
    x: () => current && toggle(current.gate.id),
    X: () => setChosen(new Set(chosen.size ? [] : shown.map((it) => it.gate.id))),
    o: () => current && (location.hash = `#/session/${encodeURIComponent(current.gate.origin.session)}`),
    '/': () => search.current?.focus(),
  });

  /** @param {import('./types.js').Gate} gate @param {{ action: string, error?: Error }} outcome */
  const onDone = (gate, outcome) => {
    toast(outcome.error ? outcome.error.message : `${outcome.action.replaceAll('_', ' ')}: ${gate.title}`, outcome.error ? 'bad' : 'good');
    const next = shown[index + 1] ?? shown[index - 1];
    drop([gate.id]);
    if (location.hash.startsWith('#/inbox')) location.hash = next && id ? `#/inbox/${encodeURIComponent(next.gate.id)}` : '#/inbox';
    reload();
  };
  const all = shown.filter((it) => chosen.has(it.gate.id));
  /** @param {string} action */
  const decideAll = async (action) => {
    setBusy(true);
    try {
      const able = all.filter((it) => it.gate.actions.some((one) => one.id === action));
      const decisions = await Promise.all(able.map(async (it) => ({ gate: it.gate.id, ...(await decision(signer, it, action, null)) })));
      const { results } = await api.post('/api/gates/decisions', { body: { decisions } });
      const failed = results.filter((it) => it.problem);
      toast(`${action === 'approve' ? 'approved' : 'denied'} ${results.length - failed.length} of ${all.length}`, failed.length ? 'bad' : 'good');
      for (const it of failed) toast(it.problem?.detail ?? '', 'bad');
      drop(results.filter((it) => !it.problem).map((it) => it.gate));
      setChosen(new Set());
      reload();
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, 'bad');
    } finally {
      setBusy(false);
    }
  };

  return html`<div class=${`split ${id && current ? 'has-detail' : ''}`}>
    <div class="pane list-pane">
      <${PageHead} title="Inbox">
        <input ref=${search} type="search" class="search" placeholder="Filter  /" aria-label="Filter gates" value=${query}
          onInput=${(/** @type {any} */ event) => setQuery(event.target.value)}
          onKeyDown=${(/** @type {any} */ event) => event.key === 'Escape' && event.target.blur()} />
      <//>
      <${KeyNotice} state=${keyState} />
      <${ErrorNote} error=${error} />
      ${all.length > 0 && html`<div class="bulk" role="group" aria-label="Selected gates">
        <span>${all.length} selected</span>
        <button class="primary small" disabled=${busy} onClick=${() => decideAll('approve')}>Approve all</button>
        <button class="danger small" disabled=${busy} onClick=${() => decideAll('deny')}>Deny all</button>
        <button class="small" onClick=${() => setChosen(new Set())}>Clear</button>
      </div>`}
      ${gates && !shown.length && html`<${Empty} title=${gates.length ? 'No gate matches' : 'Nothing waits for you'}>
        <p class="dim">Calls that need your approval and questions of agents appear here.</p><//>`}
      <ul class="rows" aria-label="Pending gates">
        ${shown.map((it, i) => html`<li key=${it.gate.id} class=${`row ${it === current ? 'current' : ''}`}>
          <input type="checkbox" checked=${chosen.has(it.gate.id)} aria-label=${`Select ${it.gate.title}`} onChange=${() => toggle(it.gate.id)} />
          <a href=${`#/inbox/${encodeURIComponent(it.gate.id)}`} aria-current=${it === current ? 'true' : undefined} onClick=${() => open(i)}>
            <span class="row-title">${exact(it.gate.title)}</span>
            <span class="row-meta">
              <span>${kindOf(it.gate)}</span>
              ${it.gate.context?.risk && html`<${Badge} kind=${tone(it.gate.context.risk)}>${it.gate.context.risk}<//>`}
              <span>${it.gate.origin.tool}</span><span>${shortId(it.gate.origin.session)}</span>
              <span class="end">${ago(it.gate.created_at)}</span>
            </span>
          </a>
        </li>`)}
      </ul>
    </div>
    <div class="pane detail-pane">
      ${current
        ? html`<a class="back" href="#/inbox">‹ Inbox</a><${GateView} key=${current.gate.id} shown=${current} onDone=${onDone} handle=${view} />`
        : html`<${Empty} title=" "></${Empty}>`}
    </div>
  </div>`;
}

/** Whether this browser can sign, and how to let it. @param {{ state: import('./app.js').KeyState }} props */
export function KeyNotice({ state }) {
  const { status, key, enrolment, start, error } = state;
  if (status === 'trusted' || status === 'loading') return null;
  if (status === 'unsupported') {
    return html`<div class="note">This browser cannot sign decisions here: it needs https or localhost. The server signs them instead, and the receipt says so.</div>`;
  }
  return html`<div class="note" aria-live="polite">
    ${status === 'none' && html`<p>Decisions made here are signed by the server. Let this browser sign them with a key of its own, which cannot leave it.</p>
      <button class="small primary" onClick=${start}>Create a key</button>`}
    ${status === 'pending' && key && html`<p>Confirm the key of this browser in a terminal on the server. Its fingerprint is <code>${key.fingerprint}</code>.</p>
      ${enrolment?.command && html`<${Command} text=${enrolment.command} />`}`}
    <${ErrorNote} error=${error} />
  </div>`;
}

// The list of sessions, and starting one.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { api, follow } from './api.js';
import { Chips, dropTarget, sendPrompt, useFiles } from './composer.js';
import { exact } from './highlight.js';
import { ago, cost, count, dateTime, titleOf, tokens, words } from './text.js';
import { Badge, Empty, ErrorNote, PageHead, tone, useKeys, useLoad } from './ui.js';

/** @typedef {import('./types.js').Session} Session */

const PAGE = 100;

/** How often the list is loaded again, in case an event was missed. */
const INTERVAL = 10_000;

/** @param {{ waiting: Set<string> }} props ids of the sessions that wait for a decision */
export function Sessions({ waiting }) {
  const [sessions, setSessions] = useState(/** @type {Session[] | null} */ (null));
  const [next, setNext] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [status, setStatus] = useState('');
  const [purpose, setPurpose] = useState('');
  const [query, setQuery] = useState('');
  const [creating, setCreating] = useState(false);
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));

  /** @param {string} [before] */
  const page = (before) => api.get('/api/sessions', { query: { limit: PAGE, status, purpose, before } });
  useEffect(() => {
    let current = true;
    const load = () => page().then((first) => {
      if (!current) return;
      // Keeps the older pages that were loaded.
      const ids = new Set(first.sessions.map((it) => it.id));
      setSessions((old) => {
        const older = old && first.next ? old.filter((it) => !ids.has(it.id) && it.id < (first.next ?? '')) : [];
        if (!older.length) setNext(first.next ?? null);
        return [...first.sessions, ...older];
      });
      setError(null);
    }, (problem) => current && setError(problem));
    setSessions(null);
    load();
    const timer = setInterval(load, INTERVAL);
    let soon = 0;
    const stop = follow(api.address('/api/events', { query: { types: 'turn_end,thread_start,status' } }), () => {
      clearTimeout(soon);
      soon = setTimeout(load, 300);
    });
    return () => { current = false; clearInterval(timer); clearTimeout(soon); stop(); };
  }, [status, purpose]);
  const more = async () => {
    const older = await page(next ?? undefined);
    setSessions((old) => [...(old ?? []), ...older.sessions]);
    setNext(older.next ?? null);
  };
  useKeys({ '/': () => search.current?.focus(), n: () => setCreating(true) });

  const shown = (sessions ?? []).filter((it) => `${titleOf(it)} ${it.id} ${it.model ?? ''}`.toLowerCase().includes(query.toLowerCase()));
  return html`<${PageHead} title="Sessions">
      <div class="filters">
        <input ref=${search} type="search" class="search" placeholder="Filter  /" aria-label="Filter sessions" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} />
        <select aria-label="Status" value=${status} onChange=${(/** @type {any} */ event) => setStatus(event.target.value)}>
          <option value="">any status</option>${['running', 'paused', 'terminated', 'error'].map((it) => html`<option>${it}</option>`)}</select>
        <select aria-label="Purpose" value=${purpose} onChange=${(/** @type {any} */ event) => setPurpose(event.target.value)}>
          <option value="">any purpose</option>${['interactive', 'workflow', 'child', 'run'].map((it) => html`<option>${it}</option>`)}</select>
        <button class="primary" onClick=${() => setCreating(true)}>New session</button>
      </div>
    <//>
    <div class="page"><${ErrorNote} error=${error} />
      ${sessions && !shown.length && html`<${Empty} title=${sessions.length ? 'No session matches' : 'No sessions yet'} />`}
      ${shown.length > 0 && html`<section><table class="sessions-table"><thead><tr><th>Title</th><th>State</th><th class="hide-phone">Model</th><th class="number hide-phone">Tokens</th><th class="number">Cost</th><th class="number">Active</th></tr></thead>
        <tbody>${shown.map((it) => html`<tr key=${it.id}>
          <td><a href=${it.purpose === 'workflow' ? `#/runs/${encodeURIComponent(it.id)}` : `#/session/${encodeURIComponent(it.id)}`}>${exact(titleOf(it))}</a></td>
          <td class="nowrap"><${State} session=${it} waits=${waiting.has(it.id)} />${it.purpose !== 'interactive' && html` <span class="hide-phone"><${Badge}>${it.purpose}<//></span>`}</td>
          <td class="hide-phone">${it.model ?? ''}</td>
          <td class="number hide-phone">${count(tokens(it.usage))}</td>
          <td class="number">${cost(it.usage.micro_dollars)}</td>
          <td class="number"><time title=${dateTime(it.updated_at)}>${ago(it.updated_at)}</time></td>
        </tr>`)}</tbody></table>
        ${next && html`<p><button onClick=${more}>Older sessions</button></p>`}</section>`}
    </div>
    ${creating && html`<${NewSession} onClose=${() => setCreating(false)} />`}`;
}

/** @param {{ session: Session, waits: boolean }} props */
function State({ session, waits }) {
  if (waits) return html`<${Badge} kind="warn">waiting<//>`;
  const status = session.run?.status ?? session.status;
  // An interactive session is open until it is ended.
  if (!session.run && status === 'running') return html`<${Badge}>open<//>`;
  return html`<${Badge} kind=${tone(status)}>${words(status)}<//>`;
}

/** @param {{ onClose: () => void }} props */
function NewSession({ onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [values, setValues] = useState({ text: '', model: '', role: '' });
  const { files, setFiles, add } = useFiles();
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const models = useLoad(() => api.get('/api/models'), []).value?.models ?? [];
  const roles = useLoad(() => api.get('/api/roles'), []).value?.roles ?? [];
  useEffect(() => dialog.current?.showModal(), []);
  const set = (/** @type {keyof typeof values} */ key) => (/** @type {any} */ event) => setValues((old) => ({ ...old, [key]: event.target.value }));
  const create = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const { session } = await api.post('/api/sessions', { body: { model: values.model || null, role: values.role || null } });
      if (values.text.trim() || files.length) await sendPrompt(session.id, 'default', values.text, files);
      onClose();
      location.hash = `#/session/${encodeURIComponent(session.id)}`;
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} class=${`form-dialog ${over ? 'dropping' : ''}`} aria-label="New session" onClose=${onClose} ...${dropTarget(add, setOver)}>
    <form class="form-grid" onSubmit=${create}>
      <h2>New session</h2>
      <label class="field">Prompt<textarea rows="5" value=${values.text} onInput=${set('text')}></textarea></label>
      <${Chips} files=${files} onChange=${setFiles} />
      <label class="field">Attachments, which you can also drop here<input type="file" multiple onChange=${(/** @type {any} */ event) => { add(event.target.files); event.target.value = ''; }} /></label>
      <label class="field">Model<select value=${values.model} onChange=${set('model')}><option value="">default</option>
        ${models.map((it) => html`<option key=${it} value=${it}>${it}</option>`)}</select></label>
      <label class="field">Role<select value=${values.role} onChange=${set('role')}><option value="">none</option>
        ${roles.map((it) => html`<option key=${it.name} value=${it.name} title=${it.description}>${it.name}</option>`)}</select></label>
      <${ErrorNote} error=${error} />
      <div class="buttons"><button class="primary" disabled=${busy}>Start</button><button type="button" onClick=${() => dialog.current?.close()}>Cancel</button></div>
    </form></dialog>`;
}

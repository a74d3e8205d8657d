// A session: its transcript, live; its timeline; prompting and control.

import { html, useCallback, useEffect, useMemo, useReducer, useRef, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { ReplayResult, Verdict } from './audit.js';
import { Composer } from './composer.js';
import { EntryView } from './entries.js';
import { GateView } from './gate.js';
import { exact } from './highlight.js';
import { loadGates } from './inbox.js';
import { VirtualList } from './list.js';
import { LiveSession } from './live.js';
import { Markdown } from './markdown.js';
import { cost, count, shortId, titleOf, tokens, words } from './text.js';
import { Timeline } from './timeline.js';
import { Badge, Command, ErrorNote, PageHead, toast, tone, useKeys, useLoad } from './ui.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Snapshot} Snapshot */

/** @param {string} id */
function useLive(id) {
  const [, redraw] = useReducer((it) => it + 1, 0);
  const live = useMemo(() => new LiveSession(id, () => redraw(0)), [id]);
  useEffect(() => () => live.stop(), [live]);
  return live;
}

/** The address of a session's page. @param {string} id */
const pageOf = (id) => `#/session/${encodeURIComponent(id)}`;

/** @param {{ id: string, tab: string }} props */
export function SessionPage({ id, tab }) {
  const live = useLive(id);
  const { snapshot } = live;
  const [verdict, setVerdict] = useState(/** @type {any} */ (null));
  const [replay, setReplay] = useState(/** @type {any} */ (null));
  const [checking, setChecking] = useState('');
  const session = snapshot?.session;
  const thread = live.thread;
  const params = { session: id };

  /** @param {string} name @param {() => Promise<void>} work */
  const check = async (name, work) => {
    setChecking(name);
    setVerdict(null);
    setReplay(null);
    try {
      await work();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); } finally { setChecking(''); }
  };
  const verify = () => check('verify', async () => setVerdict(await api.get('/api/sessions/{session}/verify', { params })));
  const runReplay = () => check('replay', async () => setReplay(await api.post('/api/sessions/{session}/replay', { params })));
  const base = pageOf(id);
  const tabs = [['transcript', 'Transcript', base], ['timeline', 'Timeline', `${base}/timeline`], ['details', 'Details', `${base}/details`]];

  return html`<${PageHead} title=${session ? exact(titleOf(session)) : 'Session'}>
      ${(snapshot?.threads.length ?? 0) > 1 && html`<select aria-label="Thread" value=${thread?.key}
        onChange=${(/** @type {any} */ event) => live.choose(event.target.value)}>
        ${snapshot?.threads.map((it) => html`<option key=${it.id} value=${it.key}>${it.key}</option>`)}</select>`}
      <button class="small" disabled=${!!checking} onClick=${verify}>${checking === 'verify' ? 'Verifying…' : 'Verify'}</button>
      <button class="small" disabled=${!!checking} onClick=${runReplay}>${checking === 'replay' ? 'Replaying…' : 'Replay'}</button>
      <a class="button small" href=${api.address('/api/sessions/{session}/export', { params })} download=${`${shortId(id)}.jsonl`}>Export</a>
    <//>
    <nav class="tabs" aria-label="Session">
      ${tabs.map(([name, label, href]) => html`<a key=${name} href=${href} aria-current=${tab === name ? 'page' : undefined}>${label}</a>`)}
      ${session?.purpose === 'workflow' && html`<a href=${`#/runs/${encodeURIComponent(id)}`}>Graph</a>`}
    </nav>
    <${ErrorNote} error=${live.error} />
    ${(verdict || replay) && html`<div class="results">
      ${verdict && html`<${Verdict} verdict=${verdict} onClose=${() => setVerdict(null)} />`}
      ${replay && html`<${ReplayResult} replay=${replay} onClose=${() => setReplay(null)} />`}</div>`}
    ${tab === 'timeline' ? html`<${Timeline} id=${id} />`
      : tab === 'details' ? html`<${Details} snapshot=${snapshot} />`
      : html`<${Transcript} live=${live} />`}`;
}

/** @param {{ live: LiveSession }} props */
function Transcript({ live }) {
  const { id, snapshot } = live;
  const list = useRef(/** @type {any} */ (null));
  const gateView = useRef(/** @type {any} */ (null));
  const [gates, setGates] = useState(/** @type {import('./types.js').ShownGate[]} */ ([]));

  useEffect(() => {
    let current = true;
    loadGates({ session: id }).then((all) => current && setGates(all), () => {});
    return () => { current = false; };
  }, [id, live.gatesVersion]);
  useKeys({
    a: () => gateView.current?.approve(),
    d: () => gateView.current?.deny(),
    e: () => gateView.current?.edit(),
    j: () => list.current?.move(1),
    k: () => list.current?.move(-1),
    G: () => list.current?.toEnd(),
    '/': () => document.querySelector('textarea')?.focus(),
  });

  const onFork = useCallback(async (/** @type {Entry} */ entry) => {
    try {
      const fork = await api.post('/api/sessions/{session}/fork', { params: { session: id }, body: { at: entry.id } });
      toast('forked the session', 'good');
      location.hash = pageOf(fork.session);
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  }, [id]);
  const renderEntry = useCallback((/** @type {Entry} */ it) => html`<${EntryView} entry=${it} session=${id} onFork=${onFork} />`, [id, onFork]);
  const session = snapshot?.session;
  const thread = live.thread;
  const activity = thread ? live.activity[thread.id] ?? 'idle' : 'idle';
  // Keys decide the gate that is shown; the others follow.
  const gate = gates[0];

  return html`<${VirtualList} items=${live.entries} keyOf=${(/** @type {Entry} */ it) => it.id} label="Transcript" handle=${list}
      render=${renderEntry} footer=${html`<${LiveMessage} live=${live} />`} />
    ${gate && html`<div class="gate-dock" role="region" aria-label="Decision">
      <${GateView} key=${gate.gate.id} shown=${gate} compact=${true} handle=${gateView} more=${gates.length - 1}
        onDone=${() => { setGates((old) => old.filter((other) => other !== gate)); live.refresh(); }} /></div>`}
    ${session?.parent ? html`<p class="composer dim">This session is a task. Prompt its <a href=${pageOf(session.parent.session)}>parent</a>.</p>`
      : session?.purpose === 'interactive' && html`<${Composer} session=${id} thread=${thread?.key ?? 'default'} activity=${activity}
          queue=${snapshot?.queue.filter((it) => it.thread === thread?.id) ?? []} paused=${session.status === 'paused'} onChange=${() => live.refresh()} />`}
    <div class="status-line" role="status">
      <${Badge} kind=${tone(activity)}>${words(activity)}<//>
      ${!live.connected && html`<${Badge} kind="bad">reconnecting<//>`}
      <span>${live.entries.length} ${live.loading ? 'entries …' : 'entries'}</span>
      ${session && html`<span>${count(tokens(session.usage))} tokens</span><span>${cost(session.usage.micro_dollars)}</span>
        ${(thread?.model ?? session.model) && html`<span class="hide-phone">${thread?.model ?? session.model}</span>`}
        ${session.sandbox && html`<span class="hide-phone">sandbox ${session.sandbox.kind}</span>`}`}
    </div>`;
}

/** Number of characters that are shown of the model's reasoning while it thinks. */
const MAX_THINKING = 600;

/** The model's message in progress. @param {{ live: LiveSession }} props */
function LiveMessage({ live }) {
  const { text, thinking, call, tools } = live.live;
  return html`<div class="live-message" aria-live="off">
    ${thinking && !text && html`<p class="thinking">${exact(thinking.slice(-MAX_THINKING))}</p>`}
    ${text && html`<${Markdown} text=${text} />`}
    ${call && html`<p class="dim">${exact(call)} …</p>`}
    ${[...tools].map(([id, running]) => html`<div key=${id}><p class="dim">${exact(running.tool)} runs</p>
      ${running.output && html`<pre class="code">${exact(running.output)}</pre>`}</div>`)}
  </div>`;
}

/** @param {{ snapshot: Snapshot | null }} props */
function Details({ snapshot }) {
  if (!snapshot) return null;
  const { session } = snapshot;
  const fork = session.forked_from;
  const facts = {
    Id: session.id, Purpose: session.purpose, Status: session.status, Model: session.model, Role: session.role,
    Project: session.project, Workspace: session.workspace, Sandbox: session.sandbox?.kind, Owner: session.user_id,
    Cost: cost(session.usage.micro_dollars),
    'Input tokens': session.usage.input_tokens, 'Cached tokens': session.usage.cached_tokens, 'Output tokens': session.usage.output_tokens,
  };
  const commands = [`rye session verify ${session.id}`, `rye replay ${session.id}`, `rye session diff ${session.id}`, `rye chat --session ${session.id}`];
  return html`<div class="page"><section><h2>Session</h2><dl class="facts">
    ${Object.entries(facts).filter(([, value]) => value !== undefined && value !== null).map(([label, value]) =>
      html`<div class="fact"><dt>${label}</dt><dd>${exact(String(value))}</dd></div>`)}
    ${session.parent && html`<div class="fact"><dt>Task of</dt><dd><a href=${pageOf(session.parent.session)}>${shortId(session.parent.session)}</a></dd></div>`}
    ${fork && html`<div class="fact"><dt>Forked from</dt><dd><a href=${pageOf(fork.session)}>${shortId(fork.session)}</a></dd></div>`}</dl></section>
    <section><h2>Threads</h2><div class="table-scroll" tabindex="0" role="region" aria-label="threads"><table><thead><tr><th>Key</th><th>Status</th><th>Model</th><th class="number">Tokens</th><th class="number">Cost</th></tr></thead>
      <tbody>${snapshot.threads.map((it) => html`<tr key=${it.id}><td>${exact(it.key)}</td><td>${it.status}</td><td>${it.model ?? ''}</td>
        <td class="number">${count(tokens(it.usage))}</td><td class="number">${cost(it.usage?.micro_dollars)}</td></tr>`)}</tbody></table></div></section>
    <${Tasks} id=${session.id} />
    <${Artifacts} id=${session.id} />
    <section><h2>In a terminal</h2><div class="form-grid">${commands.map((it) => html`<${Command} key=${it} text=${it} />`)}</div></section></div>`;
}

/** @param {{ id: string }} props */
function Tasks({ id }) {
  const { value } = useLoad(() => api.get('/api/sessions', { query: { parent: id } }), [id]);
  if (!value?.sessions.length) return null;
  return html`<section><h2>Tasks</h2><ul>${value.sessions.map((it) => html`<li key=${it.id}><a href=${pageOf(it.id)}>${exact(titleOf(it))}</a>
    <span class="dim"> ${count(tokens(it.usage))} tokens, ${cost(it.usage.micro_dollars)}</span></li>`)}</ul></section>`;
}

/** @param {{ id: string }} props */
function Artifacts({ id }) {
  const { value } = useLoad(() => api.get('/api/sessions/{session}/artifacts', { params: { session: id } }), [id]);
  if (!value?.artifacts.length) return null;
  return html`<section><h2>Files</h2><ul>${value.artifacts.map((it) => html`<li key=${it.name}>
    <a href=${api.address('/api/blobs/{hash}', { params: { hash: it.source.replace('blob:', '') }, query: { session: id } })} download=${it.name}>${exact(it.name)}</a></li>`)}</ul></section>`;
}

// A session: its transcript, live; its timeline; prompting and control.

import { html, useCallback, useEffect, useMemo, useReducer, useRef, useState } from './vendor/preact-htm.js';
import { api, follow } from './api.js';
import { Composer } from './composer.js';
import { EntryView } from './entries.js';
import { GateView } from './gate.js';
import { exact } from './highlight.js';
import { loadGates } from './inbox.js';
import { VirtualList } from './list.js';
import { Markdown } from './markdown.js';
import { cost, count, shortId, titleOf, tokens, words } from './text.js';
import { Timeline } from './timeline.js';
import { Badge, Command, ErrorNote, PageHead, toast, tone, useKeys } from './ui.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Snapshot} Snapshot */
/** @typedef {import('./types.js').RyeEvent} RyeEvent */

/** Number of entries that are loaded at once. */
const PAGE = 1000;

/** The model's message in progress. */
const NOTHING = { text: '', thinking: '', tool: '', output: '' };

/**
 * A session that follows its events. It changes in place; `onChange` tells.
 */
export class LiveSession {
  /** @param {string} id @param {() => void} onChange */
  constructor(id, onChange) {
    this.id = id;
    this.onChange = onChange;
    /** @type {Snapshot | null} */
    this.snapshot = null;
    /** @type {Entry[]} */
    this.entries = [];
    /** Positions of the entries. @type {Map<string, number>} */
    this.index = new Map();
    this.live = { ...NOTHING };
    /** @type {Record<string, string>} */
    this.activity = {};
    /** @type {RyeEvent[]} events for the timeline */
    this.events = [];
    this.threadKey = 'default';
    this.connected = true;
    this.loading = true;
    /** Whether entries arrived before older ones were loaded. */
    this.disordered = false;
    /** @type {Error | null} */
    this.error = null;
    this.gatesVersion = 0;
    this.generation = 0;
    this.scheduled = false;
    this.stop = follow(`/api/sessions/${encodeURIComponent(id)}/events`, (name, data) => this.receive(name, data), (connected) => {
      this.connected = connected;
      this.changed();
    });
  }

  /** Tells at most once per frame. */
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.onChange();
    });
  }

  get thread() {
    const threads = this.snapshot?.threads ?? [];
    return threads.find((it) => it.key === this.threadKey) ?? threads[0];
  }

  /** @param {string} key */
  choose(key) {
    this.threadKey = key;
    this.load();
  }

  /** Loads the history of the thread. */
  async load() {
    const generation = ++this.generation;
    this.entries = [];
    this.index.clear();
    this.live = { ...NOTHING };
    this.loading = true;
    this.disordered = false;
    this.changed();
    const thread = this.thread;
    try {
      let after = '';
      while (thread) {
        const path = `/api/sessions/${encodeURIComponent(this.id)}/threads/${encodeURIComponent(thread.id)}/entries`;
        const page = await api.get(`${path}?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
        if (generation !== this.generation) return;
        for (const entry of page.entries) this.put(entry);
        this.changed();
        if (!page.next) break;
        after = page.next;
      }
      this.error = null;
    } catch (error) {
      this.error = /** @type {Error} */ (error);
    }
    if (this.disordered) this.order();
    this.loading = false;
    this.changed();
  }

  /** Sorts entries that arrived while older ones were loading. */
  order() {
    this.entries.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    this.index = new Map(this.entries.map((it, i) => [it.id, i]));
  }

  /** Adds an entry once. @param {Entry} entry */
  put(entry) {
    const at = this.index.get(entry.id);
    if (at === undefined) {
      this.index.set(entry.id, this.entries.length);
      this.entries.push(entry);
    } else {
      this.entries[at] = { ...this.entries[at], ...entry };
    }
  }

  async refresh() {
    try {
      const snapshot = await api.get(`/api/sessions/${encodeURIComponent(this.id)}`);
      this.snapshot = snapshot;
      this.gatesVersion++;
      this.changed();
    } catch { /* the stream reports errors */ }
  }

  /** @param {string} name @param {any} data */
  receive(name, data) {
    if (name === 'init') {
      this.snapshot = data;
      this.gatesVersion++;
      for (const it of data.threads) this.activity[it.id] = it.turn ? 'running' : 'idle';
      this.load();
      return;
    }
    if (name === 'deleted' || name === 'problem' || name === 'reset') {
      if (name !== 'reset') this.error = new Error(name === 'deleted' ? 'the session was deleted' : data.detail);
      this.changed();
      return;
    }
    /** @type {RyeEvent} */
    const event = data;
    const detail = event.data ?? {};
    if (event.sequence) this.events.push(event);
    const own = !event.thread || event.thread === this.thread?.id;
    switch (name) {
      case 'message_end':
      case 'message_update':
        if (own && detail.content) {
          this.put({ id: detail.entry, kind: detail.content, created_at: event.at });
          this.disordered ||= this.loading;
          if (name === 'message_end') this.live = { ...NOTHING };
          // A graph opens and closes gates in its record.
          if (detail.content.type === 'run') this.refresh();
        }
        break;
      case 'message_start':
      case 'model_retry':
        if (own) this.live = { ...NOTHING };
        break;
      case 'text_delta': if (own) this.live = { ...this.live, text: this.live.text + detail.text }; break;
      case 'thinking_delta': if (own) this.live = { ...this.live, thinking: this.live.thinking + detail.text }; break;
      case 'tool_call_delta': if (own) this.live = { ...this.live, tool: detail.tool }; break;
      case 'tool_start': if (own) this.live = { ...NOTHING, tool: detail.tool }; break;
      case 'tool_output': if (own) this.live = { ...this.live, output: (this.live.output + detail.text).slice(-4000) }; break;
      case 'status': if (event.thread) this.activity[event.thread] = detail.status; break;
      case 'turn_end':
        if (own) this.live = { ...NOTHING };
        this.refresh();
        break;
      case 'queue_state': case 'thread_start': case 'decision_gate': case 'decision_gate_resolved':
      case 'decision_gate_expired': case 'decision_gate_withdrawn': case 'usage':
        this.refresh();
        break;
      default:
    }
    this.changed();
  }
}

/** @param {string} id */
function useLive(id) {
  const [, redraw] = useReducer((it) => it + 1, 0);
  const live = useMemo(() => new LiveSession(id, () => redraw(0)), [id]);
  useEffect(() => () => live.stop(), [live]);
  return live;
}

/** @param {{ id: string, tab: string }} props */
export function SessionPage({ id, tab }) {
  const live = useLive(id);
  const { snapshot } = live;
  const list = useRef(/** @type {any} */ (null));
  const gateView = useRef(/** @type {any} */ (null));
  const [gates, setGates] = useState(/** @type {import('./types.js').ShownGate[]} */ ([]));
  const [verdict, setVerdict] = useState(/** @type {any} */ (null));
  const [checking, setChecking] = useState(false);

  useEffect(() => {
    let current = true;
    loadGates(`?session=${encodeURIComponent(id)}`).then((all) => current && setGates(all), () => {});
    return () => { current = false; };
  }, [id, live.gatesVersion]);
  useKeys({
    a: () => gateView.current?.approve(),
    d: () => gateView.current?.deny(),
    e: () => gateView.current?.edit(),
    G: () => list.current?.toEnd(),
    '/': () => document.querySelector('textarea')?.focus(),
  });

  const onFork = useCallback(async (/** @type {Entry} */ entry) => {
    try {
      const fork = await api.post(`/api/sessions/${encodeURIComponent(id)}/fork`, { at: entry.id });
      toast('forked the session', 'good');
      location.hash = `#/session/${encodeURIComponent(fork.session)}`;
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  }, [id]);
  const renderEntry = useCallback((/** @type {Entry} */ it) => html`<${EntryView} entry=${it} session=${id} onFork=${onFork} />`, [id, onFork]);
  const verify = async () => {
    setChecking(true);
    try {
      setVerdict(await api.get(`/api/sessions/${encodeURIComponent(id)}/verify`));
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); } finally { setChecking(false); }
  };
  const session = snapshot?.session;
  const thread = live.thread;
  const activity = thread ? live.activity[thread.id] ?? 'idle' : 'idle';
  const base = `#/session/${encodeURIComponent(id)}`;
  const path = `/api/sessions/${encodeURIComponent(id)}`;

  return html`<${PageHead} title=${session ? exact(titleOf(session)) : 'Session'}>
      ${(snapshot?.threads.length ?? 0) > 1 && html`<select aria-label="Thread" value=${thread?.key}
        onChange=${(/** @type {any} */ event) => live.choose(event.target.value)}>
        ${snapshot?.threads.map((it) => html`<option key=${it.id} value=${it.key}>${it.key}</option>`)}</select>`}
      <button class="small" disabled=${checking} onClick=${verify}>${checking ? 'Verifying…' : 'Verify'}</button>
      <a class="button small" href=${`${path}/export`} download=${`${shortId(id)}.jsonl`}>Export</a>
    <//>
    <nav class="tabs" aria-label="Session">
      <a href=${base} aria-current=${tab === 'transcript' ? 'page' : undefined}>Transcript</a>
      <a href=${`${base}/timeline`} aria-current=${tab === 'timeline' ? 'page' : undefined}>Timeline</a>
      <a href=${`${base}/details`} aria-current=${tab === 'details' ? 'page' : undefined}>Details</a>
      ${session?.purpose === 'workflow' && html`<a href=${`#/runs/${encodeURIComponent(id)}`}>Graph</a>`}
    </nav>
    <${ErrorNote} error=${live.error} />
    ${verdict && html`<${Verdict} verdict=${verdict} onClose=${() => setVerdict(null)} />`}
    ${tab === 'timeline' ? html`<${Timeline} id=${id} live=${live} />`
      : tab === 'details' ? html`<${Details} snapshot=${snapshot} />`
      : html`<${VirtualList} items=${live.entries} keyOf=${(/** @type {Entry} */ it) => it.id} label="Transcript" handle=${list}
          render=${renderEntry}
          footer=${html`<div class="live-message" aria-live="off">
            ${live.live.thinking && !live.live.text && html`<p class="thinking">${live.live.thinking.slice(-600)}</p>`}
            ${live.live.text && html`<${Markdown} text=${live.live.text} />`}
            ${live.live.tool && html`<p class="dim">${live.live.tool} …</p>`}
            ${live.live.output && html`<pre class="code">${exact(live.live.output)}</pre>`}
            ${gates.map((it, i) => html`<${GateView} key=${it.gate.id} shown=${it} compact=${true} handle=${i === 0 ? gateView : undefined}
              onDone=${() => { setGates((old) => old.filter((other) => other !== it)); live.refresh(); }} />`)}
          </div>`} />
        ${session?.parent ? html`<p class="composer dim">This session is a task. Prompt its <a href=${`#/session/${encodeURIComponent(session.parent.session)}`}>parent</a>.</p>`
          : session && session.purpose === 'interactive' && html`<${Composer} session=${id} thread=${thread?.key ?? 'default'} activity=${activity} queue=${snapshot?.queue.filter((it) => it.thread === thread?.id) ?? []} paused=${session.status === 'paused'} onChange=${() => live.refresh()} />`}
        <div class="status-line" role="status">
          <${Badge} kind=${tone(activity)}>${words(activity)}<//>
          ${!live.connected && html`<${Badge} kind="bad">reconnecting<//>`}
          <span>${live.entries.length} ${live.loading ? 'entries …' : 'entries'}</span>
          ${session && html`<span>${count(tokens(session.usage))} tokens</span><span>${cost(session.usage.micro_dollars)}</span>
            ${(thread?.model ?? session.model) && html`<span class="hide-phone">${thread?.model ?? session.model}</span>`}
            ${session.sandbox && html`<span class="hide-phone">sandbox ${session.sandbox.kind}</span>`}`}
        </div>`}`;
}

/** @param {{ verdict: any, onClose: () => void }} props */
function Verdict({ verdict, onClose }) {
  const sessions = verdict.sessions ?? [];
  const findings = sessions.flatMap((/** @type {any} */ it) => it.findings ?? []);
  const unsealed = sessions.flatMap((/** @type {any} */ it) => it.unsealed ?? []);
  const keys = [...new Set(sessions.flatMap((/** @type {any} */ it) => it.keys ?? []))];
  const owners = sessions[0]?.owners ?? {};
  const sum = (/** @type {string} */ key) => sessions.reduce((/** @type {number} */ all, /** @type {any} */ it) => all + (it[key] ?? 0), 0);
  return html`<div class=${`note ${verdict.verified ? 'good' : 'bad'}`} role="status">
    <strong>${verdict.verified ? '✓ The record is intact' : findings.length ? '✗ The record was altered or cannot be verified' : '… The record is not complete yet'}</strong>
    <span>${sum('entries')} entries, ${sum('seals')} seals and ${sum('receipts')} receipts are checked${keys.length ? html`, signed by ${keys.map((key, i) => `${i ? ', ' : ''}${owners[key] ?? 'unknown'} (${key})`)}` : ''}.</span>
    ${findings.slice(0, 20).map((/** @type {any} */ it) => html`<span>${it.location}: ${it.reason}</span>`)}
    ${!findings.length && unsealed.length > 0 && html`<span>${unsealed.length} parts are sealed at the end of the turn.</span>`}
    <button class="small" onClick=${onClose}>Close</button>
  </div>`;
}

/** @param {{ snapshot: Snapshot | null }} props */
function Details({ snapshot }) {
  if (!snapshot) return null;
  const { session } = snapshot;
  const facts = {
    Id: session.id, Purpose: session.purpose, Status: session.status, Model: session.model, Role: session.role,
    Project: session.project, Workspace: session.workspace, Sandbox: session.sandbox?.kind, Owner: session.user_id,
    'Forked from': session.forked_from?.session, Cost: cost(session.usage.micro_dollars),
    'Input tokens': session.usage.input_tokens, 'Cached tokens': session.usage.cached_tokens, 'Output tokens': session.usage.output_tokens,
  };
  const commands = [`rye session verify ${session.id}`, `rye replay ${session.id}`, `rye session diff ${session.id}`, `rye chat --session ${session.id}`];
  return html`<div class="page"><section><h2>Session</h2><dl class="facts">
    ${Object.entries(facts).filter(([, value]) => value !== undefined && value !== null).map(([label, value]) =>
      html`<div class="fact"><dt>${label}</dt><dd>${exact(String(value))}</dd></div>`)}</dl></section>
    <section><h2>Threads</h2><div class="table-scroll" tabindex="0" role="region" aria-label="threads"><table><thead><tr><th>Key</th><th>Status</th><th>Model</th><th class="number">Tokens</th><th class="number">Cost</th></tr></thead>
      <tbody>${snapshot.threads.map((it) => html`<tr key=${it.id}><td>${exact(it.key)}</td><td>${it.status}</td><td>${it.model ?? ''}</td>
        <td class="number">${count(tokens(it.usage))}</td><td class="number">${cost(it.usage?.micro_dollars)}</td></tr>`)}</tbody></table></div></section>
    <section><h2>In a terminal</h2><div class="form-grid">${commands.map((it) => html`<${Command} key=${it} text=${it} />`)}</div></section></div>`;
}

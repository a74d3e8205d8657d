// The timeline of a session: turns, model calls, tool calls and gates as spans.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { api, follow } from './api.js';
import { exact } from './highlight.js';
import { clock, cost, count, dateTime, duration, tokens, words } from './text.js';
import { Empty } from './ui.js';

/** @typedef {{ kind: string, name: string, start: number, end: number | null, bad: boolean, note: string }} Span */

/**
 * Spans in a sequence of stored events.
 * @param {import('./types.js').RyeEvent[]} events @returns {Span[]}
 */
export function spans(events) {
  /** @type {Span[]} */
  const all = [];
  /** @type {Map<string, Span>} */
  const open = new Map();
  /** Number of tools that run, by thread: the model is called when the last one has ended. @type {Map<string, number>} */
  const running = new Map();
  /** The model call of a thread that ended last, which the usage is of. @type {Map<string, Span>} */
  const called = new Map();
  /** @param {string} key @param {string} kind @param {string} name @param {number} start */
  const begin = (key, kind, name, start) => {
    if (open.has(key)) return;
    const span = { kind, name, start, end: null, bad: false, note: '' };
    open.set(key, span);
    all.push(span);
  };
  /** @param {string} key @param {number} at @param {boolean} bad */
  const finish = (key, at, bad) => {
    const span = open.get(key);
    if (!span) return;
    span.end = at;
    span.bad = bad;
    open.delete(key);
  };
  for (const { type, at, data, thread } of events) {
    const model = `model:${thread}`;
    const tools = running.get(thread ?? '') ?? 0;
    switch (type) {
      case 'queue_state':
        if (!data.running || open.has(`turn:${data.running}`)) break;
        begin(`turn:${data.running}`, 'turn', 'turn', at);
        begin(model, 'model', 'model', at);
        break;
      case 'turn_end':
        finish(`turn:${data.prompt}`, at, ['error', 'limit'].includes(data.reason));
        finish(model, at, data.reason === 'error');
        running.delete(thread ?? '');
        break;
      case 'message_end':
        if (data.content?.role !== 'assistant') break;
        begin(model, 'model', 'model', at);
        called.set(thread ?? '', /** @type {Span} */ (open.get(model)));
        /** @type {Span} */ (open.get(model)).name = data.content.model ?? 'model';
        finish(model, at, false);
        break;
      case 'usage': {
        const span = called.get(thread ?? '');
        if (span) span.note = `${count(tokens(data.usage))} tokens${data.usage.micro_dollars ? `, ${cost(data.usage.micro_dollars)}` : ''}`;
        break;
      }
      case 'tool_start':
        running.set(thread ?? '', tools + 1);
        begin(`tool:${data.call}`, 'tool', data.tool, at);
        break;
      case 'tool_end':
        finish(`tool:${data.call}`, at, data.status !== 'success');
        running.set(thread ?? '', Math.max(0, tools - 1));
        if (tools <= 1) begin(model, 'model', 'model', at);
        break;
      case 'decision_gate': begin(`gate:${data.gate.id}`, 'gate', data.gate.title, at); break;
      case 'decision_gate_resolved':
        finish(`gate:${data.gate}`, at, data.resolution?.action === 'deny');
        break;
      case 'decision_gate_expired': case 'decision_gate_withdrawn': finish(`gate:${data.gate}`, at, true); break;
      case 'compaction_start': begin(`compaction:${thread}`, 'model', 'compaction', at); break;
      case 'compaction_end': finish(`compaction:${thread}`, at, !!data.error); break;
      case 'task_start': begin(`task:${data.session}`, 'tool', 'task', at); break;
      case 'task_end': finish(`task:${data.session}`, at, false); break;
      default:
    }
  }
  return all.sort((a, b) => a.start - b.start);
}

/** Events that a timeline shows. */
const TYPES = 'queue_state,turn_end,message_end,usage,tool_start,tool_end,decision_gate,decision_gate_resolved,' +
  'decision_gate_expired,decision_gate_withdrawn,compaction_start,compaction_end,task_start,task_end';

/** The most recent spans are shown. */
const MAX_SPANS = 500;

/** What is needed of an event: a session can have many. @param {any} event */
const slim = (event) => (event.type === 'message_end' ? { ...event, data: { content: { role: event.data.content?.role, model: event.data.content?.model } } } : event);

/** @param {{ id: string }} props */
export function Timeline({ id }) {
  const [past, setPast] = useState(/** @type {import('./types.js').RyeEvent[] | null} */ (null));
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    /** @type {import('./types.js').RyeEvent[]} */
    const events = [];
    let timer = 0;
    const show = () => {
      clearTimeout(timer);
      timer = setTimeout(() => setPast([...events]), 100);
    };
    const path = api.address('/api/sessions/{session}/events', { params: { session: id }, query: { after: '0', types: TYPES } });
    const stop = follow(path, (name, event) => {
      if (name === 'reset') events.length = 0;
      if (event.session && event.data) events.push(slim(event));
      show();
    });
    show();
    return () => { stop(); clearTimeout(timer); };
  }, [id]);
  const all = past ? spans(past) : [];
  const isLive = all.some((it) => it.end === null);
  useEffect(() => {
    if (!isLive) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isLive]);
  if (!past) return null;
  const shown = all.slice(-MAX_SPANS);
  if (!shown.length) return html`<${Empty} title="Nothing has happened yet" />`;
  const start = shown[0].start;
  const end = Math.max(...shown.map((it) => it.end ?? Math.max(now, it.start)));
  const scale = Math.max(1, end - start);
  return html`<div class="timeline" tabindex="0" role="region" aria-label="Timeline">
    <p class="dim small-text">${shown.length < all.length ? `The last ${shown.length} of ${all.length} spans, ` : `${all.length} spans, `}${duration(end - start)} in total, from ${dateTime(start)}</p>
    <p class="legend small-text">${['turn', 'model', 'tool', 'gate'].map((kind) => html`<span key=${kind}><span class=${`swatch span-bar ${kind}`}></span>${kind}</span>`)}<span><span class="swatch span-bar bad"></span>failed or denied</span></p>
    <ul class="rows">${shown.map((it, i) => {
      const left = ((it.start - start) / scale) * 100;
      const width = (((it.end ?? now) - it.start) / scale) * 100;
      const time = it.end === null ? 'running' : duration(it.end - it.start);
      return html`<li key=${i} class=${`span-row ${it.kind === 'turn' ? 'turn' : 'nested'}`} aria-label=${`${words(it.kind)} ${it.name}, ${time}${it.note && `, ${it.note}`}`}
          title=${`${it.name}\n${clock(it.start)}, ${time}${it.note && `\n${it.note}`}`}>
        <span class="name">${exact(it.name)}${it.note && html`<span class="dim"> ${it.note}</span>`}</span>
        <span class="span-track"><span class=${`span-bar ${it.kind} ${it.bad ? 'bad' : ''} ${it.end === null ? 'running' : ''}`} style=${{ left: `${Math.min(left, 99.5)}%`, width: `${Math.max(0.3, Math.min(width, 100 - left))}%` }}></span></span>
        <span class="time">${time}</span></li>`;
    })}</ul></div>`;
}

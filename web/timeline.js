// The timeline of a session: turns, tool calls and gates as spans.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { exact } from './highlight.js';
import { duration, words } from './text.js';
import { Empty } from './ui.js';

/** @typedef {{ kind: string, name: string, start: number, end: number | null, bad: boolean }} Span */

/**
 * Spans in a sequence of events.
 * @param {import('./types.js').RyeEvent[]} events @returns {Span[]}
 */
export function spans(events) {
  /** @type {Span[]} */
  const all = [];
  /** @type {Map<string, Span>} */
  const open = new Map();
  /** @param {string} key @param {string} kind @param {string} name @param {number} start */
  const begin = (key, kind, name, start) => {
    if (open.has(key)) return;
    const span = { kind, name, start, end: null, bad: false };
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
    if (type === 'queue_state' && data.running) begin(`turn:${data.running}`, 'turn', 'turn', at);
    else if (type === 'turn_end') finish(`turn:${data.prompt}`, at, ['error', 'limit'].includes(data.reason));
    else if (type === 'message_start') begin(`model:${thread}`, 'model', 'model', at);
    else if (type === 'message_end' && data.content?.role === 'assistant') finish(`model:${thread}`, at, false);
    else if (type === 'tool_start') begin(`tool:${data.call}`, 'tool', data.tool, at);
    else if (type === 'tool_end') finish(`tool:${data.call}`, at, data.status !== 'success');
    else if (type === 'decision_gate') begin(`gate:${data.gate.id}`, 'gate', data.gate.title, at);
    else if (type.startsWith('decision_gate_')) finish(`gate:${data.gate}`, at, type !== 'decision_gate_resolved' || data.resolution?.action === 'deny');
    else if (type === 'compaction_start') begin(`compaction:${thread}`, 'model', 'compaction', at);
    else if (type === 'compaction_end') finish(`compaction:${thread}`, at, !!data.error);
    else if (type === 'task_start') begin(`task:${data.session}`, 'tool', 'task', at);
    else if (type === 'task_end') finish(`task:${data.session}`, at, false);
  }
  return all.sort((a, b) => a.start - b.start);
}

/** Events that a timeline shows. */
const TYPES = 'queue_state,turn_end,message_start,message_end,tool_start,tool_end,decision_gate,decision_gate_resolved,decision_gate_expired,decision_gate_withdrawn,compaction_start,compaction_end,task_start,task_end';

/** The most recent spans are shown. */
const MAX_SPANS = 500;

/** @param {{ id: string, live: import('./session.js').LiveSession }} props */
export function Timeline({ id, live }) {
  const [past, setPast] = useState(/** @type {import('./types.js').RyeEvent[] | null} */ (null));
  useEffect(() => {
    // The stream of a replay ends when the session is idle; until then, the live events continue it.
    /** @type {import('./types.js').RyeEvent[]} */
    const events = [];
    const source = new EventSource(`/api/sessions/${encodeURIComponent(id)}/events?after=0&types=${TYPES}`);
    let timer = 0;
    const show = () => {
      clearTimeout(timer);
      timer = setTimeout(() => setPast([...events]), 100);
    };
    for (const name of TYPES.split(',')) {
      source.addEventListener(name, (event) => {
        events.push(JSON.parse(/** @type {MessageEvent} */ (event).data));
        show();
      });
    }
    show();
    return () => { source.close(); clearTimeout(timer); };
  }, [id]);
  if (!past) return null;
  const all = spans(past);
  const shown = all.slice(-MAX_SPANS);
  if (!shown.length) return html`<${Empty} title="Nothing has happened yet" />`;
  const now = Date.now();
  const start = shown[0].start;
  const end = Math.max(...shown.map((it) => it.end ?? now));
  const scale = Math.max(1, end - start);
  return html`<div class="timeline" tabindex="0" role="region" aria-label="Timeline">
    <p class="dim small-text">${shown.length < all.length ? `The last ${shown.length} of ${all.length} spans, ` : `${all.length} spans, `}${duration(end - start)} in total</p>
    <ul class="rows">${shown.map((it, i) => {
      const left = ((it.start - start) / scale) * 100;
      const width = (((it.end ?? now) - it.start) / scale) * 100;
      const time = it.end === null ? 'running' : duration(it.end - it.start);
      return html`<li key=${i} class=${`span-row ${it.kind === 'turn' ? 'turn' : 'nested'}`} aria-label=${`${words(it.kind)} ${it.name}, ${time}`}>
        <span class="name" title=${it.name}>${exact(it.name)}</span>
        <span class="span-track"><span class=${`span-bar ${it.kind} ${it.bad ? 'bad' : ''}`} style=${{ left: `${Math.min(left, 99.5)}%`, width: `${Math.max(0.3, Math.min(width, 100 - left))}%` }}></span></span>
        <span class="time">${time}</span></li>`;
    })}</ul></div>`;
}

// One entry of a history.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { Code, Diff, Json, exact, isDiff } from './highlight.js';
import { Markdown } from './markdown.js';
import { bytes, clock, count, dateTime, words } from './text.js';
import { Badge, tone } from './ui.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Part} Part */

/** Images that a browser may show; all others are files. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** Address of the data behind a reference, as long as the component lives. @param {Part} part @param {string} session @param {boolean} wanted */
function useSource(part, session, wanted) {
  const [url, setUrl] = useState('');
  useEffect(() => {
    if (!wanted || !part.source.startsWith('blob:')) return;
    let made = '';
    const hash = part.source.slice('blob:'.length);
    api.blob(`/api/blobs/${hash}?session=${encodeURIComponent(session)}`).then((blob) => {
      made = URL.createObjectURL(new Blob([blob], { type: IMAGES.includes(part.mime_type) ? part.mime_type : 'application/octet-stream' }));
      setUrl(made);
    }, () => {});
    return () => { if (made) URL.revokeObjectURL(made); };
  }, [part.source, wanted]);
  return part.source.startsWith('data:') ? part.source : url;
}

/** @param {{ part: Part, session: string }} props */
function Attachment({ part, session }) {
  const isImage = IMAGES.includes(part.mime_type);
  const url = useSource(part, session, true);
  const name = part.name || part.mime_type;
  return html`<div class="attachment">${isImage && url
    ? html`<img src=${url} alt=${name} loading="lazy" />`
    : html`<a class="chip" href=${url || undefined} download=${name}><span>${exact(name)} · ${part.mime_type}</span></a>`}</div>`;
}

/** What a call is about, in one line. @param {any} args */
export function preview(args) {
  if (!args || typeof args !== 'object') return String(args ?? '');
  const main = args.command ?? args.path ?? args.file ?? args.tool ?? args.id ?? args.query ?? args.prompt ?? args.url;
  const text = typeof main === 'string' ? main : JSON.stringify(args);
  return text.length > 240 ? `${text.slice(0, 240)}…` : text;
}

/** @param {{ part: Part }} props */
function ToolCall({ part }) {
  const [open, setOpen] = useState(false);
  return html`<details class="tool-fold" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><span class="tool-name">${part.tool}</span><span class="preview">${exact(preview(part.args))}</span></summary>
    ${open && html`<div class="inside">${typeof part.args?.command === 'string' && html`<${Code} text=${part.args.command} language="shell" label="command" />`}
      <${Json} value=${part.args} label="arguments" /></div>`}
  </details>`;
}

/** Longer diffs are folded, in lines. */
const MAX_OPEN_DIFF = 40;

/** @param {{ part: Part }} props */
function ToolResult({ part }) {
  const text = part.text || '';
  // Small changes of files are shown at once.
  const [open, setOpen] = useState(() => isDiff(text) && text.split('\n').length <= MAX_OPEN_DIFF);
  const first = text.split('\n').find((/** @type {string} */ line) => line.trim()) ?? '';
  const lines = text ? text.split('\n').length : 0;
  return html`<details class="tool-fold" open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><${Badge} kind=${tone(part.status)}>${part.status}<//><span class="tool-name">${part.tool}</span>
      <span class="preview">${exact(first.slice(0, 240))}</span>
      <span class="dim nowrap">${part.elided ? 'pruned' : lines > 1 ? `${lines} lines` : bytes(text.length)}</span></summary>
    ${open && html`<div class="inside">
      ${text && (isDiff(text) ? html`<${Diff} text=${text} />` : html`<${Code} text=${text} label="output" />`)}
      ${part.data?.diff && !isDiff(text) && html`<${Diff} text=${part.data.diff} />`}
      ${part.error && html`<${Json} value=${part.error} label="error" />`}
      ${part.data !== undefined && part.data !== null && !part.data.diff && html`<details class="raw"><summary>Result for programs</summary><${Json} value=${part.data} /></details>`}
    </div>`}
  </details>`;
}

/** @param {{ text: string }} props */
function Thinking({ text }) {
  if (!text) return null;
  return html`<details class="raw"><summary>Reasoning</summary><p class="thinking">${exact(text)}</p></details>`;
}

/** @param {{ part: Part, role: string, session: string }} props */
function PartView({ part, role, session }) {
  switch (part.type) {
    case 'text': return role === 'assistant' ? html`<${Markdown} text=${part.text} />` : html`<p class="markdown prose">${exact(part.text)}</p>`;
    case 'thinking': return html`<${Thinking} text=${part.text} />`;
    case 'tool_call': return html`<${ToolCall} part=${part} />`;
    case 'tool_result': return html`<${ToolResult} part=${part} />`;
    case 'attachment': return html`<${Attachment} part=${part} session=${session} />`;
    case 'error': return html`<p class="note bad">${exact(part.error.message)}</p>`;
    default: return html`<${Json} value=${part} />`;
  }
}

/** @param {any} message */
function author(message) {
  if (message.synthetic) return `Rye (${words(message.synthetic)})`;
  if (message.role === 'user') return message.author?.name ?? 'You';
  return message.role === 'assistant' ? message.model ?? 'Model' : message.role;
}

/**
 * @param {{ entry: Entry, session: string, onFork: (entry: Entry) => void }} props
 */
export function EntryView({ entry, session, onFork }) {
  const { kind } = entry;
  const fork = html`<button class="small fork" title="Fork the session after this entry" onClick=${() => onFork(entry)}>Fork here</button>`;
  const time = html`<time title=${dateTime(entry.created_at)}>${clock(entry.created_at)}</time>`;
  switch (kind.type) {
    case 'message': {
      if (kind.role === 'tool') {
        return html`<div class="entry tool">${kind.parts.map((/** @type {Part} */ part, /** @type {number} */ i) =>
          html`<${PartView} key=${i} part=${part} role="tool" session=${session} />`)}</div>`;
      }
      return html`<div class=${`entry ${kind.role}`}>
        <div class="entry-head"><span class="who">${author(kind)}</span>${time}
          ${kind.aborted && html`<${Badge} kind="warn">stopped: ${kind.aborted}<//>`}
          ${kind.incomplete && html`<${Badge} kind="warn">${words(kind.incomplete)}<//>`}${fork}</div>
        <div class="entry-body">${kind.parts.map((/** @type {Part} */ part, /** @type {number} */ i) =>
          html`<${PartView} key=${i} part=${part} role=${kind.role} session=${session} />`)}
          ${kind.result !== undefined && html`<${Json} value=${kind.result} label="result" />`}</div>
      </div>`;
    }
    case 'decision_gate':
      return html`<div class="entry tool"><p class="boundary">asked: ${exact(kind.title)}</p></div>`;
    case 'compaction':
      return html`<div class="entry"><p class="boundary">compacted ${kind.covered.length} entries, ${count(kind.tokens_before)} → ${count(kind.tokens_after)} tokens</p>
        <details class="raw"><summary>Summary</summary><${Markdown} text=${kind.summary} /></details></div>`;
    case 'compaction_undone':
      return html`<div class="entry"><p class="boundary">compaction undone</p></div>`;
    case 'branch_summary':
      return html`<div class="entry"><p class="boundary">another branch</p><${Markdown} text=${kind.summary} /></div>`;
    case 'run':
      return html`<div class="entry tool"><details class="tool-fold"><summary><span class="tool-name">run</span>
        <span class="preview">${kind.events.map((/** @type {any} */ it) => [words(it.type), it.node].filter(Boolean).join(' ')).join(', ')}</span>${time}</summary>
        <div class="inside"><${Json} value=${kind.events} label="steps" /></div></details></div>`;
    default:
      return html`<div class="entry"><${Json} value=${kind} /></div>`;
  }
}

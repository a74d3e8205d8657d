// One entry of a history.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { Code, Diff, Json, exact, isDiff, languageOf, replacement } from './highlight.js';
import { Markdown } from './markdown.js';
import { bytes, clock, count, dateTime, words } from './text.js';
import { Badge, tone } from './ui.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Part} Part */
/** @typedef {import('./types.js').Message} Message */
/** @typedef {Extract<Part, { type: 'attachment' }>} AttachmentPart */

/** Images that a browser may show; all others are files. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** The bytes of a blob of a session. @param {string} session @param {string} source such as `blob:HASH` */
export const loadBlob = (session, source) =>
  api.blob('/api/blobs/{hash}', { params: { hash: source.slice('blob:'.length) }, query: { session } });

/** The bytes of a `data:` URL. @param {string} source */
async function decode(source) {
  const [, isBase64, data] = /^data:[^,]*?(;base64)?,(.*)$/s.exec(source) ?? [];
  if (data === undefined) throw new Error('no data');
  if (!isBase64) return new Blob([decodeURIComponent(data)]);
  return new Blob([Uint8Array.from(atob(data), (it) => it.charCodeAt(0))]);
}

/** Address of the data of an attachment, as long as the component lives. @param {AttachmentPart} part @param {string} session */
function useSource(part, session) {
  const [url, setUrl] = useState('');
  useEffect(() => {
    let made = '';
    let gone = false;
    // The data may claim to be a page; then it is only downloaded.
    const type = IMAGES.includes(part.mime_type) ? part.mime_type : 'application/octet-stream';
    const load = part.source.startsWith('blob:') ? loadBlob(session, part.source) : decode(part.source);
    load.then((blob) => {
      if (gone) return;
      made = URL.createObjectURL(new Blob([blob], { type }));
      setUrl(made);
    }, () => {});
    return () => {
      gone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [part.source]);
  return url;
}

/** @param {{ part: AttachmentPart, session: string }} props */
function Attachment({ part, session }) {
  const isImage = IMAGES.includes(part.mime_type);
  const url = useSource(part, session);
  const name = part.name || part.mime_type;
  return html`<div class=${`attachment ${isImage ? 'image' : ''}`}>${isImage
    ? html`<a href=${url || undefined} download=${name} aria-label=${`Download ${name}`}><img src=${url || undefined} alt=${name} /></a>`
    : html`<a class="chip" href=${url || undefined} download=${name}><span>${exact(name)} · ${exact(part.mime_type)}</span></a>`}</div>`;
}

/** Which parts a person has opened or closed: a row that scrolls out of view is forgotten. @type {WeakMap<object, boolean>} */
const folds = new WeakMap();

/** Whether a part is open. @param {object} part @param {() => boolean} [initial] @returns {[boolean, (event: any) => void]} */
function useFold(part, initial = () => false) {
  const [open, setOpen] = useState(() => folds.get(part) ?? initial());
  return [open, (event) => {
    folds.set(part, event.target.open);
    setOpen(event.target.open);
  }];
}

/** What a call is about, in one line. @param {any} args */
export function preview(args) {
  if (!args || typeof args !== 'object') return String(args ?? '');
  const main = args.command ?? args.path ?? args.file ?? args.tool_id ?? args.id ?? args.query ?? args.pattern ?? args.prompt ?? args.url ?? args.question;
  const text = typeof main === 'string' ? main : JSON.stringify(args);
  return text.length > 240 ? `${text.slice(0, 240)}…` : text;
}

/** The arguments of a call: text as it is, a replacement as a diff, everything else as JSON. @param {{ args: any }} props */
export function Arguments({ args }) {
  if (args === null || typeof args !== 'object' || Array.isArray(args)) return html`<${Json} value=${args} label="arguments" />`;
  const isEdit = typeof args.old === 'string' && typeof args.new === 'string';
  const entries = Object.entries(args).filter(([name]) => !isEdit || (name !== 'old' && name !== 'new'));
  if (!entries.length && !isEdit) return html`<p class="dim">No arguments</p>`;
  /** @param {string} name */
  const language = (name) => (name === 'command' ? 'shell' : typeof args.path === 'string' && name === 'content' ? languageOf(args.path) : '');
  return html`${entries.map(([name, value]) => html`<div key=${name} class="argument">
    <p class="argument-name">${exact(name)}</p>
    ${typeof value === 'string' ? html`<${Code} text=${value} language=${language(name)} label=${name} />` : html`<${Json} value=${value} label=${name} />`}
  </div>`)}
  ${isEdit && html`<div class="argument"><p class="argument-name">old → new</p><${Diff} text=${replacement(args.old, args.new)} label="replacement" /></div>`}`;
}

/** @param {{ part: Extract<Part, { type: 'tool_call' }> }} props */
function ToolCall({ part }) {
  const [open, onToggle] = useFold(part);
  return html`<details class="tool-fold" open=${open} onToggle=${onToggle}>
    <summary><span class="tool-name">${exact(part.tool)}</span><span class="preview">${exact(preview(part.args))}</span></summary>
    ${open && html`<div class="inside"><${Arguments} args=${part.args} /></div>`}
  </details>`;
}

/** Longer diffs are folded, in lines. */
const MAX_OPEN_DIFF = 40;

/** @param {{ part: Extract<Part, { type: 'tool_result' }> }} props */
function ToolResult({ part }) {
  const text = part.text || '';
  // Small changes of files are shown at once.
  const [open, onToggle] = useFold(part, () => isDiff(text) && text.split('\n').length <= MAX_OPEN_DIFF);
  const first = /^\s*(.*)$/m.exec(text.slice(0, 1000))?.[1] ?? '';
  const lines = text ? text.split('\n').length : 0;
  const data = /** @type {any} */ (part.data);
  return html`<details class="tool-fold" open=${open} onToggle=${onToggle}>
    <summary><${Badge} kind=${tone(part.status)}>${part.status}<//><span class="tool-name">${exact(part.tool)}</span>
      <span class="preview">${exact(first.slice(0, 240))}</span>
      <span class="dim nowrap">${part.elided ? 'pruned' : lines > 1 ? `${lines} lines` : bytes(text.length)}</span></summary>
    ${open && html`<div class="inside">
      ${text && (isDiff(text) ? html`<${Diff} text=${text} />` : html`<${Code} text=${text} label="output" />`)}
      ${data?.diff && !isDiff(text) && html`<${Diff} text=${data.diff} />`}
      ${part.error && html`<${Json} value=${part.error} label="error" />`}
      ${data !== undefined && data !== null && !data.diff && html`<${Fold} title="Result for programs"><${Json} value=${data} /><//>`}
    </div>`}
  </details>`;
}

/** Content that is rendered when it is opened. @param {{ title: string, children?: any }} props */
export function Fold({ title, children }) {
  const [open, setOpen] = useState(false);
  return html`<details class="raw" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary>${title}</summary>${open && children}</details>`;
}

/** @param {{ part: Part, role: string, session: string }} props */
function PartView({ part, role, session }) {
  switch (part.type) {
    case 'text': return role === 'assistant' ? html`<${Markdown} text=${part.text} />` : html`<${Prose} text=${part.text} />`;
    case 'thinking': return part.text ? html`<${Fold} title="Reasoning"><p class="thinking">${exact(part.text)}</p><//>` : null;
    case 'tool_call': return html`<${ToolCall} part=${part} />`;
    case 'tool_result': return html`<${ToolResult} part=${part} />`;
    case 'attachment': return html`<${Attachment} part=${part} session=${session} />`;
    case 'error': return html`<p class="note bad">${exact(part.error.message)}</p>`;
    default: return html`<${Json} value=${part} />`;
  }
}

/** Longer prose is shown like output. */
const MAX_PROSE = 20_000;

/** Text as a person wrote it. @param {{ text: string }} props */
export function Prose({ text }) {
  if (text.length > MAX_PROSE) return html`<${Code} text=${text} label="text" />`;
  return html`<p class="prose" dir="auto">${exact(text)}</p>`;
}

/** @param {Message} message */
function author(message) {
  if (message.synthetic) return `Rye (${words(message.synthetic)})`;
  if (message.role === 'user') return message.author?.name ?? 'You';
  return message.role === 'assistant' ? message.model ?? 'Model' : message.role;
}

/** What a recorded step of a graph was, in a few words. @param {import('./types.js').RunEvent} event */
function describeStep(event) {
  switch (event.type) {
    case 'started': return `started ${event.graph}`;
    case 'begin': return `${event.node} started`;
    case 'step': return `${event.node} ${event.outcome}`;
    case 'item_end': return `item ${event.index} ${event.error ? 'failed' : 'done'}`;
    case 'end': return `run ${words(event.status)}`;
    default: return words(event.type);
  }
}

/**
 * @param {{ entry: Entry, session: string, onFork: (entry: Entry) => void }} props
 */
export function EntryView({ entry, session, onFork }) {
  const { kind } = entry;
  const fork = html`<button class="small fork" title="Continue after this entry in a new session" aria-label="Fork here" onClick=${() => onFork(entry)}>Fork<span class="hide-phone"> here</span></button>`;
  const time = html`<time title=${dateTime(entry.created_at)}>${clock(entry.created_at)}</time>`;
  switch (kind.type) {
    case 'message': {
      const parts = kind.parts.map((part, i) => html`<${PartView} key=${i} part=${part} role=${kind.role} session=${session} />`);
      if (kind.role === 'tool') return html`<div class="entry tool"><div class="entry-body">${parts}</div>${fork}</div>`;
      return html`<div class=${`entry ${kind.role}`}>
        <div class="entry-head"><span class="who">${exact(author(kind))}</span>${time}
          ${kind.aborted && html`<${Badge} kind="warn">stopped: ${words(String(kind.aborted))}<//>`}
          ${kind.incomplete && html`<${Badge} kind="warn">${words(kind.incomplete)}<//>`}</div>
        <div class="entry-body">${parts}
          ${kind.result !== undefined && kind.result !== null && html`<${Json} value=${kind.result} label="result" />`}</div>
        ${fork}
      </div>`;
    }
    case 'decision_gate':
      return html`<div class="entry tool"><p class="boundary"><span>asked: ${exact(kind.title)}</span></p>${fork}</div>`;
    case 'compaction':
      return html`<div class="entry compaction"><p class="boundary"><span>compacted ${kind.covered.length} entries, ${count(kind.tokens_before)} → ${count(kind.tokens_after)} tokens</span></p>
        <${Fold} title="Summary that the model sees instead"><${Markdown} text=${kind.summary} /><//>${fork}</div>`;
    case 'compaction_undone':
      return html`<div class="entry compaction"><p class="boundary"><span>compaction undone</span></p>${fork}</div>`;
    case 'branch_summary':
      return html`<div class="entry"><p class="boundary"><span>another branch</span></p><${Markdown} text=${kind.summary} />${fork}</div>`;
    case 'run':
      return html`<div class="entry tool"><details class="tool-fold"><summary><span class="tool-name">graph</span>
        <span class="preview">${exact(kind.events.map((it) => describeStep(/** @type {any} */ (it))).join(', '))}</span>${time}</summary>
        <div class="inside"><${Json} value=${kind.events} label="steps" /></div></details></div>`;
    default:
      return html`<div class="entry"><${Json} value=${kind} /></div>`;
  }
}

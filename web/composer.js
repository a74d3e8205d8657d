// Prompting: text, attachments, and what happens if the thread is busy.

import { html, useRef, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { base64 } from './json.js';
import { bytes } from './text.js';
import { toast } from './ui.js';

/** @typedef {{ name: string, mime_type: string, source: string, size: number }} Attached a file to send */

/** Maximum size of all attachments of a prompt. */
const MAX_ATTACHMENTS = 8 << 20;

/** @param {FileList | File[]} files @returns {Promise<Attached[]>} */
async function readFiles(files) {
  return Promise.all(Array.from(files, async (file) => {
    const mime = file.type || 'application/octet-stream';
    const data = base64(new Uint8Array(await file.arrayBuffer()));
    return { name: file.name, mime_type: mime, source: `data:${mime};base64,${data}`, size: file.size };
  }));
}

/**
 * Files to send, and how to add more.
 * @returns {{ files: Attached[], setFiles: (files: Attached[]) => void, add: (files: FileList | File[]) => Promise<void> }}
 */
export function useFiles() {
  const [files, setFiles] = useState(/** @type {Attached[]} */ ([]));
  /** @param {FileList | File[]} list */
  const add = async (list) => {
    const all = Array.from(list);
    const size = [...files, ...all].reduce((sum, it) => sum + it.size, 0);
    if (size > MAX_ATTACHMENTS) return toast(`the attachments of a prompt may have ${bytes(MAX_ATTACHMENTS)} together`, 'bad');
    const read = await readFiles(all);
    setFiles((old) => [...old, ...read]);
  };
  return { files, setFiles, add };
}

/** Handlers of an element that files can be dropped on. @param {(files: FileList) => void} add @param {(over: boolean) => void} [setOver] */
export const dropTarget = (add, setOver = () => {}) => ({
  onDragOver: (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(true);
  },
  onDragLeave: () => setOver(false),
  onDrop: (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(false);
    if (event.dataTransfer?.files.length) add(event.dataTransfer.files);
  },
});

/** @param {{ files: Attached[], onChange: (files: Attached[]) => void }} props */
export function Chips({ files, onChange }) {
  if (!files.length) return null;
  return html`<div class="chips">${files.map((file, i) => html`<span key=${i} class="chip"><span>${exact(file.name)} · ${bytes(file.size)}</span>
    <button type="button" aria-label=${`Remove ${file.name}`} onClick=${() => onChange(files.filter((it) => it !== file))}>×</button></span>`)}</div>`;
}

/**
 * Sends a prompt.
 * @param {string} session @param {string} thread @param {string} text @param {Attached[]} files @param {{ mode?: 'followup' | 'steer' | 'collect' }} [options]
 */
export function sendPrompt(session, thread, text, files, options = {}) {
  const attachments = files.map(({ name, mime_type, source }) => ({ type: /** @type {'attachment'} */ ('attachment'), name, mime_type, source }));
  return api.post('/api/sessions/{session}/threads/{thread}/prompts', {
    params: { session, thread },
    body: { text, attachments, ...options },
    headers: { 'Idempotency-Key': crypto.randomUUID?.() ?? String(Math.random()) },
  });
}

/**
 * @param {{ session: string, thread: string, activity: string, queue: import('./types.js').Prompt[], paused: boolean, onChange: () => void }} props
 */
export function Composer({ session, thread, activity, queue, paused, onChange }) {
  const draftKey = `draft:${session}`;
  const [text, setText] = useState(() => sessionStorage.getItem(draftKey) ?? '');
  const { files, setFiles, add } = useFiles();
  const [dropping, setDropping] = useState(false);
  const [sending, setSending] = useState(false);
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const busy = activity !== 'idle';
  const waiting = queue.filter((it) => it.status === 'waiting');

  const write = (/** @type {string} */ value) => {
    setText(value);
    sessionStorage.setItem(draftKey, value);
  };
  /** @param {'steer'} [mode] */
  const send = async (mode) => {
    if (sending || (!text.trim() && !files.length)) return;
    setSending(true);
    try {
      await sendPrompt(session, thread, text, files, mode ? { mode } : {});
      write('');
      setFiles([]);
      onChange();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); } finally { setSending(false); }
  };
  /** @param {'abort' | 'pause' | 'resume'} command */
  const control = async (command) => {
    try {
      await api.post('/api/sessions/{session}/{command}', { params: { session, command } });
      onChange();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  };
  /** @param {string} prompt */
  const withdraw = async (prompt) => {
    try {
      await api.remove('/api/sessions/{session}/queue/{item}', { params: { session, item: prompt } });
      onChange();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  };
  return html`<form class=${`composer ${dropping ? 'dropping' : ''}`} aria-label="Prompt"
      onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }} ...${dropTarget(add, setDropping)}>
    ${waiting.length > 0 && html`<div class="chips" role="group" aria-label="Queue">${waiting.map((it) => html`<span key=${it.id} class="chip"><span>queued: ${exact(it.content.slice(0, 80))}</span>
      <button type="button" aria-label="Withdraw" onClick=${() => withdraw(it.id)}>×</button></span>`)}</div>`}
    <${Chips} files=${files} onChange=${setFiles} />
    <textarea aria-label="Prompt" placeholder=${busy ? 'Queue another prompt, or steer' : 'Ask or instruct'} rows="2" value=${text}
      onInput=${(/** @type {any} */ event) => write(event.target.value)}
      onPaste=${(/** @type {ClipboardEvent} */ event) => { if (event.clipboardData?.files.length) { event.preventDefault(); add(event.clipboardData.files); } }}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
        if (event.key === 'Escape') /** @type {HTMLElement} */ (event.target).blur();
      }}></textarea>
    <div class="composer-row">
      <button class="primary" disabled=${sending || (!text.trim() && !files.length)}>${busy ? 'Queue' : 'Send'}<kbd>Ctrl ⏎</kbd></button>
      ${busy && html`<button type="button" disabled=${sending || !text.trim()} onClick=${() => send('steer')}>Steer</button>
        <button type="button" class="danger" onClick=${() => control('abort')}>Stop</button>`}
      <button type="button" onClick=${() => picker.current?.click()}>Attach</button>
      <input ref=${picker} type="file" multiple hidden aria-label="Attach files" onChange=${(/** @type {any} */ event) => { add(event.target.files); event.target.value = ''; }} />
      <button type="button" onClick=${() => control(paused ? 'resume' : 'pause')}>${paused ? 'Resume' : 'Pause'}</button>
    </div>
  </form>`;
}

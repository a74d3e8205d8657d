// Prompting: text, attachments, and what happens if the thread is busy.

import { html, useRef, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { base64 } from './json.js';
import { bytes } from './text.js';
import { toast } from './ui.js';

/** @typedef {{ name: string, mime_type: string, source: string, size: number }} File_ */

/** Maximum size of all attachments of a prompt. */
const MAX_ATTACHMENTS = 8 << 20;

/** @param {FileList | File[]} files @returns {Promise<File_[]>} */
export async function readFiles(files) {
  return Promise.all(Array.from(files, async (file) => {
    const mime = file.type || 'application/octet-stream';
    const data = base64(new Uint8Array(await file.arrayBuffer()));
    return { name: file.name, mime_type: mime, source: `data:${mime};base64,${data}`, size: file.size };
  }));
}

/** @param {{ files: File_[], onChange: (files: File_[]) => void }} props */
export function Chips({ files, onChange }) {
  if (!files.length) return null;
  return html`<div class="chips">${files.map((file, i) => html`<span key=${i} class="chip"><span>${exact(file.name)} · ${bytes(file.size)}</span>
    <button type="button" aria-label=${`Remove ${file.name}`} onClick=${() => onChange(files.filter((it) => it !== file))}>×</button></span>`)}</div>`;
}

/**
 * Sends a prompt.
 * @param {string} session @param {string} thread @param {string} text @param {File_[]} files @param {object} [options]
 */
export function sendPrompt(session, thread, text, files, options = {}) {
  const attachments = files.map(({ name, mime_type, source }) => ({ type: 'attachment', name, mime_type, source }));
  const path = `/api/sessions/${encodeURIComponent(session)}/threads/${encodeURIComponent(thread)}/prompts`;
  return api.post(path, { text, attachments, ...options }, { 'Idempotency-Key': crypto.randomUUID?.() ?? String(Math.random()) });
}

/**
 * @param {{ session: string, thread: string, activity: string, queue: import('./types.js').Prompt[], paused: boolean, onChange: () => void }} props
 */
export function Composer({ session, thread, activity, queue, paused, onChange }) {
  const draftKey = `draft:${session}`;
  const [text, setText] = useState(() => sessionStorage.getItem(draftKey) ?? '');
  const [files, setFiles] = useState(/** @type {File_[]} */ ([]));
  const [dropping, setDropping] = useState(false);
  const [sending, setSending] = useState(false);
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const busy = activity !== 'idle';
  const waiting = queue.filter((it) => ['queued', 'waiting'].includes(it.status));

  const write = (/** @type {string} */ value) => {
    setText(value);
    sessionStorage.setItem(draftKey, value);
  };
  /** @param {FileList | File[]} list */
  const add = async (list) => {
    const all = [...files, ...(await readFiles(list))];
    if (all.reduce((sum, it) => sum + it.size, 0) > MAX_ATTACHMENTS) return toast(`attachments may have ${bytes(MAX_ATTACHMENTS)} together`, 'bad');
    setFiles(all);
  };
  /** @param {string} [mode] */
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
  /** @param {string} command */
  const control = async (command) => {
    try {
      await api.post(`/api/sessions/${encodeURIComponent(session)}/${command}`);
      onChange();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  };
  /** @param {string} prompt */
  const withdraw = async (prompt) => {
    try {
      await api.remove(`/api/sessions/${encodeURIComponent(session)}/queue/${encodeURIComponent(prompt)}`);
      onChange();
    } catch (error) { toast(/** @type {Error} */ (error).message, 'bad'); }
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setDropping(false);
    if (event.dataTransfer?.files.length) add(event.dataTransfer.files);
  };
  return html`<form class=${`composer ${dropping ? 'dropping' : ''}`} aria-label="Prompt"
      onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}
      onDragOver=${(/** @type {Event} */ event) => { event.preventDefault(); setDropping(true); }}
      onDragLeave=${() => setDropping(false)} onDrop=${drop}>
    ${waiting.length > 0 && html`<div class="chips" role="group" aria-label="Queue">${waiting.map((it) => html`<span key=${it.id} class="chip"><span>queued: ${exact(it.content.slice(0, 80))}</span>
      <button type="button" aria-label="Withdraw" onClick=${() => withdraw(it.id)}>×</button></span>`)}</div>`}
    <${Chips} files=${files} onChange=${setFiles} />
    <textarea aria-label="Prompt" placeholder=${busy ? 'Queue another prompt, or steer' : 'Ask or instruct. Ctrl Enter sends.'} rows="2" value=${text}
      onInput=${(/** @type {any} */ event) => write(event.target.value)}
      onPaste=${(/** @type {ClipboardEvent} */ event) => { if (event.clipboardData?.files.length) { event.preventDefault(); add(event.clipboardData.files); } }}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
        if (event.key === 'Escape') /** @type {HTMLElement} */ (event.target).blur();
      }}></textarea>
    <div class="composer-row">
      <button class="primary" disabled=${sending || (!text.trim() && !files.length)}>${busy ? 'Queue' : 'Send'}</button>
      ${busy && html`<button type="button" disabled=${sending || !text.trim()} onClick=${() => send('steer')}>Steer</button>
        <button type="button" class="danger" onClick=${() => control('abort')}>Stop</button>`}
      <button type="button" onClick=${() => picker.current?.click()}>Attach</button>
      <input ref=${picker} type="file" multiple hidden aria-label="Attach files" onChange=${(/** @type {any} */ event) => { add(event.target.files); event.target.value = ''; }} />
      <button type="button" onClick=${() => control(paused ? 'resume' : 'pause')}>${paused ? 'Resume' : 'Pause'}</button>
    </div>
  </form>`;
}

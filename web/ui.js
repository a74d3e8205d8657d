// Components and hooks that several pages use.

import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact-htm.js';
import { Problem } from './api.js';

/**
 * Loads a value again whenever its inputs change.
 * @template T
 * @param {() => Promise<T>} load @param {unknown[]} inputs
 * @returns {{ value: T | null, error: Error | null, reload: () => void }}
 */
export function useLoad(load, inputs) {
  const [state, setState] = useState(/** @type {{ value: T | null, error: Error | null }} */ ({ value: null, error: null }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setState({ value, error: null }),
      (error) => current && setState((old) => ({ ...old, error })),
    );
    return () => { current = false; };
  }, [...inputs, round]);
  return { ...state, reload: () => setRound((it) => it + 1) };
}

/**
 * Handles keys while the person is not typing.
 * @param {Record<string, (event: KeyboardEvent) => void>} keys
 */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  // Before the page is painted, so that keys work as soon as it is visible.
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const typing = target.matches('input:not([type=checkbox]), textarea, select');
      if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const act = latest.current[event.key];
      if (!act) return;
      event.preventDefault();
      act(event);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}

/** @param {{ error: Error | null }} props */
export function ErrorNote({ error }) {
  if (!error) return null;
  const hint = error instanceof Problem ? error.hint : null;
  return html`<div class="note bad" role="alert">
    <span>${error.message}</span>
    ${hint && html`<${Command} text=${hint} />`}
  </div>`;
}

/** A command to copy. @param {{ text: string }} props */
export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<span class="command">
    <code tabindex="0">${text}</code>
    <button type="button" class="small" onClick=${copy}>${copied ? 'Copied' : 'Copy'}</button>
  </span>`;
}

/** @param {{ title: string, children?: any }} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/** @param {{ kind?: string, children?: any, title?: string }} props */
export function Badge({ kind = '', children, title }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;
}

/** The colour of a status. @param {string} status */
export function tone(status) {
  if (['running', 'streaming', 'thinking', 'tool_calling', 'queued'].includes(status)) return 'live';
  if (['blocked_on_decision_gate', 'paused', 'pending', 'waiting', 'interrupted', 'medium'].includes(status)) return 'warn';
  if (['error', 'failed', 'limit', 'timed_out', 'high', 'critical', 'aborted', 'cancelled'].includes(status)) return 'bad';
  if (['completed', 'success', 'verified', 'trusted', 'low'].includes(status)) return 'good';
  return '';
}

/** A heading of a page, with its actions. @param {{ title: any, children?: any }} props */
export function PageHead({ title, children }) {
  return html`<header class="page-head"><h1 tabindex="-1">${title}</h1><div class="actions">${children}</div></header>`;
}

/** @typedef {{ text: string, kind: string, id: number }} Toast */

/** @param {string} text @param {string} [kind] */
export function toast(text, kind = '') {
  dispatchEvent(new CustomEvent('rye:toast', { detail: { text, kind } }));
}

/** Messages that disappear on their own. */
export function Toasts() {
  const [all, setAll] = useState(/** @type {Toast[]} */ ([]));
  useEffect(() => {
    let next = 0;
    /** @param {Event} event */
    const show = (event) => {
      const id = next++;
      setAll((old) => [...old.slice(-3), { .../** @type {CustomEvent} */ (event).detail, id }]);
      setTimeout(() => setAll((old) => old.filter((it) => it.id !== id)), 5000);
    };
    addEventListener('rye:toast', show);
    return () => removeEventListener('rye:toast', show);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map((it) => html`<div key=${it.id} class=${`toast ${it.kind}`}>${it.text}</div>`)}
  </div>`;
}

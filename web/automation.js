// What starts work without a person, and what is sent elsewhere: schedules and webhooks.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { ago, dateTime, words } from './text.js';
import { Badge, Command, ErrorNote, toast, useLoad } from './ui.js';

/** @typedef {import('./types.js').Schemas} Schemas */

/** How often the schedules are read again: they fire. */
const INTERVAL = 5000;

/** Runs a request and loads the list again. @param {() => void} reload */
const acting = (reload) => async (/** @type {() => Promise<unknown>} */ request) => {
  try {
    await request();
    reload();
    return true;
  } catch (problem) {
    toast(/** @type {Error} */ (problem).message, 'bad');
    return false;
  }
};

/** @param {{ label: string, heads: string[], children?: any }} props */
const List = ({ label, heads, children }) => html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label}><table>
  <thead><tr>${heads.map((it) => html`<th>${it}</th>`)}<th><span class="visually-hidden">Actions</span></th></tr></thead><tbody>${children}</tbody></table></div>`;

/** A text field. @param {{ label: string, value: string, onInput: (value: string) => void, required?: boolean, placeholder?: string }} props */
const Field = ({ label, onInput, ...props }) => html`<input aria-label=${label} ...${props} onInput=${(/** @type {any} */ event) => onInput(event.target.value)} />`;

/** The time zone of this browser. */
const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

export function Schedules() {
  const { value, error, reload } = useLoad(() => api.get('/api/schedules'), []);
  const act = acting(reload);
  useEffect(() => {
    const timer = setInterval(reload, INTERVAL);
    return () => clearInterval(timer);
  }, []);
  const [cron, setCron] = useState('');
  const [text, setText] = useState('');
  const create = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const body = { cron, time_zone: zone(), action: { type: /** @type {'prompt'} */ ('prompt'), text } };
    if (await act(() => api.post('/api/schedules', { body }))) { setCron(''); setText(''); }
  };
  /** @param {Schemas['Schedule']} it */
  const command = (it, /** @type {'pause' | 'resume' | 'run'} */ name) =>
    act(() => api.post('/api/schedules/{schedule}/{command}', { params: { schedule: it.id, command: name } }));
  const schedules = value?.schedules ?? [];
  return html`<section><h2>Schedules</h2><${ErrorNote} error=${error} />
    ${schedules.length > 0 && html`<${List} label="schedules" heads=${['Starts', 'When', 'Next', 'Last']}>${schedules.map((it) => html`<tr key=${it.id}>
      <td>${exact(it.name ?? (it.action.type === 'graph' ? it.action.graph : it.action.text).slice(0, 80))}</td>
      <td><code>${it.cron}</code> ${exact(it.time_zone)}</td>
      <td class="nowrap">${it.paused ? html`<${Badge} kind="warn">paused<//>` : it.next ? dateTime(it.next) : ''}</td>
      <td class="nowrap">${it.last ? `${words(it.last.outcome)} ${ago(it.last.at)}` : ''}</td>
      <td class="nowrap number"><button class="small" onClick=${() => command(it, 'run')}>Run now</button>
        <button class="small" onClick=${() => command(it, it.paused ? 'resume' : 'pause')}>${it.paused ? 'Resume' : 'Pause'}</button>
        <button class="small danger" aria-label=${`Delete schedule ${it.id}`} onClick=${() => act(() => api.remove('/api/schedules/{schedule}', { params: { schedule: it.id } }))}>Delete</button></td></tr>`)}<//>`}
    <form class="inline-form" onSubmit=${create}>
      <${Field} label="Cron expression" placeholder="0 9 * * 1-5" required value=${cron} onInput=${setCron} />
      <${Field} label="Prompt of the schedule" placeholder="Prompt" required value=${text} onInput=${setText} />
      <button disabled=${!cron.trim() || !text.trim()}>Add schedule</button></form></section>`;
}

export function Webhooks() {
  const { value, error, reload } = useLoad(() => api.get('/api/webhooks'), []);
  const act = acting(reload);
  const [url, setUrl] = useState('');
  const [events, setEvents] = useState('');
  const [secret, setSecret] = useState('');
  const create = (/** @type {Event} */ event) => {
    event.preventDefault();
    act(async () => {
      const names = events.split(/[\s,]+/).filter(Boolean);
      setSecret((await api.post('/api/webhooks', { body: { url, events: names } })).secret);
      setUrl('');
      setEvents('');
    });
  };
  const webhooks = value?.webhooks ?? [];
  return html`<section><h2>Webhooks</h2><${ErrorNote} error=${error} />
    ${webhooks.length > 0 && html`<${List} label="webhooks" heads=${['URL', 'Events', 'State']}>${webhooks.map((it) => html`<tr key=${it.id}>
      <td>${exact(it.name ?? it.url)}</td><td>${it.events.length ? it.events.join(', ') : 'all'}</td>
      <td>${it.disabled ? html`<${Badge} kind="bad" title=${it.disabled}>disabled<//>` : html`<${Badge} kind="good">active<//>`}</td>
      <td class="number"><button class="small danger" aria-label=${`Delete webhook ${it.url}`} onClick=${() => act(() => api.remove('/api/webhooks/{webhook}', { params: { webhook: it.id } }))}>Delete</button></td></tr>`)}<//>`}
    ${secret && html`<div class="note good"><span>The secret that signs is shown once:</span><${Command} text=${secret} /></div>`}
    <form class="inline-form" onSubmit=${create}>
      <${Field} label="URL of the new webhook" placeholder="https://example.org/rye" required value=${url} onInput=${setUrl} />
      <${Field} label="Events of the new webhook" placeholder="all events" value=${events} onInput=${setEvents} />
      <button disabled=${!url.trim()}>Add webhook</button></form></section>`;
}

// Settings: the key of this browser, tokens, models and spend.

import { html, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { Schedules, Webhooks } from './automation.js';
import { exact } from './highlight.js';
import { KeyNotice } from './inbox.js';
import { ago, cost, count, dateTime, titleOf, tokens } from './text.js';
import { Badge, Command, ErrorNote, PageHead, toast, useLoad } from './ui.js';

/** @typedef {import('./types.js').Usage} Usage */
/** @typedef {import('./types.js').Token} Token */

/** @param {{ me: Token, keyState: import('./app.js').KeyState }} props */
export function Settings({ me, keyState }) {
  const isAdmin = me.scopes.includes('admin');
  const logOut = async () => {
    await api.logOut();
    location.reload();
  };
  return html`<${PageHead} title="Settings"><button onClick=${logOut}>Log out</button><//>
    <div class="page">
      <section><h2>You</h2><dl class="facts">
        <div class="fact"><dt>Name</dt><dd>${exact(me.user ?? me.name)}</dd></div>
        <div class="fact"><dt>May</dt><dd>${me.scopes.map((it) => html`<${Badge}>${it}<//> `)}</dd></div>
        ${me.expires_at && html`<div class="fact"><dt>Logged in until</dt><dd>${dateTime(me.expires_at)}</dd></div>`}
      </dl></section>
      <section><h2>Key of this browser</h2><${KeyNotice} state=${keyState} />
        ${keyState.status === 'trusted' && keyState.key && html`<dl class="facts">
          <div class="fact"><dt>Fingerprint</dt><dd><code>${keyState.key.fingerprint}</code> <${Badge} kind="good">trusted for decisions<//></dd></div>
          <div class="fact"><dt>To revoke</dt><dd><${Command} text=${`rye keys revoke ${keyState.key.fingerprint}`} /></dd></div></dl>`}
      </section>
      ${isAdmin && html`<${Keys} own=${keyState.key?.fingerprint ?? ''} />`}
      <${Spend} />
      <${Schedules} />
      ${isAdmin && html`<${Webhooks} />`}
      ${isAdmin && html`<${Tokens} me=${me} />`}
      <section><h2>Models</h2><${Command} text="rye models list" /></section>
    </div>`;
}

/** The keys of all browsers. @param {{ own: string }} props */
function Keys({ own }) {
  const { value, error } = useLoad(() => api.get('/api/browser-keys'), []);
  const others = (value?.keys ?? []).filter((it) => it.fingerprint !== own);
  if (!others.length && !error) return null;
  return html`<section><h2>Keys of other browsers</h2><${ErrorNote} error=${error} />
    <div class="table-scroll" tabindex="0" role="region" aria-label="keys"><table><thead><tr><th>Fingerprint</th><th>Owner</th><th>State</th></tr></thead>
      <tbody>${others.map((it) => html`<tr key=${it.fingerprint}><td><code>${it.fingerprint}</code></td><td>${exact(it.owner ?? '')}</td>
        <td>${it.trusted ? html`<${Badge} kind="good">trusted<//>` : html`<${Badge} kind="warn">requested<//>`}</td></tr>`)}</tbody></table></div></section>`;
}

/** @typedef {{ name: string, link?: string, usage: Usage }} Sum */

/** @type {Usage} */
const NONE = { turns: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, micro_dollars: 0 };

/** @param {Usage} a @param {Usage} b @returns {Usage} */
const plus = (a, b) => ({
  turns: a.turns + b.turns, input_tokens: a.input_tokens + b.input_tokens, cached_tokens: a.cached_tokens + b.cached_tokens,
  output_tokens: a.output_tokens + b.output_tokens, micro_dollars: a.micro_dollars + b.micro_dollars,
});

/** Sums by a name. @template T @param {T[]} all @param {(it: T) => string} nameOf @param {(it: T) => Usage} usageOf @returns {Sum[]} */
function sums(all, nameOf, usageOf) {
  /** @type {Map<string, Usage>} */
  const found = new Map();
  for (const it of all) found.set(nameOf(it), plus(found.get(nameOf(it)) ?? NONE, usageOf(it)));
  return [...found].map(([name, usage]) => ({ name, usage }));
}

/** @param {{ title: string, rows: Sum[] }} props */
function Bars({ title, rows }) {
  const size = (/** @type {Sum} */ it) => it.usage.micro_dollars || tokens(it.usage) / 1000;
  const most = Math.max(1e-9, ...rows.map(size));
  return html`<section class="bars-section"><table class="bars" aria-label=${title}><colgroup><col /><col class="share" /><col class="number" /><col class="number" /></colgroup>
    <thead><tr><th>${title}</th><th><span class="visually-hidden">Share</span></th><th class="number">Tokens</th><th class="number">Cost</th></tr></thead>
    <tbody>${rows.map((it) => html`<tr key=${it.link ?? it.name}><th scope="row">${it.link ? html`<a href=${it.link}>${exact(it.name)}</a>` : exact(it.name)}</th>
      <td class="share"><span class="bar" style=${{ width: `${(size(it) / most) * 100}%` }}></span></td>
      <td class="number">${count(tokens(it.usage))}</td><td class="number">${cost(it.usage.micro_dollars)}</td></tr>`)}</tbody></table></section>`;
}

/** Number of days that are shown. */
const DAYS = 14;

/** Number of sessions and models that are shown. */
const MAX_ROWS = 10;

function Spend() {
  const [since] = useState(() => new Date().setHours(0, 0, 0, 0) - (DAYS - 1) * 86_400_000);
  const { value, error } = useLoad(() => api.get('/api/usage', { query: { since } }), []);
  const recent = useLoad(() => api.get('/api/sessions', { query: { limit: 1000 } }), []);
  const hours = value?.hours ?? [];
  const days = sums(hours, (it) => new Date(it.at).toLocaleDateString('sv'), (it) => it.usage).sort((a, b) => (a.name < b.name ? 1 : -1));
  const bySize = (/** @type {Sum} */ a, /** @type {Sum} */ b) => b.usage.micro_dollars - a.usage.micro_dollars || tokens(b.usage) - tokens(a.usage);
  const models = sums(hours, (it) => it.model, (it) => it.usage).sort(bySize).slice(0, MAX_ROWS);
  // The usage of a session includes that of its tasks.
  const sessions = (recent.value?.sessions ?? []).filter((it) => !it.parent && it.updated_at >= since && tokens(it.usage) > 0)
    .map((it) => ({ name: titleOf(it), link: `#/session/${encodeURIComponent(it.id)}`, usage: it.usage })).sort(bySize).slice(0, MAX_ROWS);
  const all = hours.reduce((sum, it) => plus(sum, it.usage), NONE);
  return html`<section><h2>Spend</h2><${ErrorNote} error=${error ?? recent.error} />
    ${value && !hours.length && html`<p class="dim">No model has been called in the last ${DAYS} days.</p>`}
    ${hours.length > 0 && html`<p>${cost(all.micro_dollars)} and ${count(tokens(all))} tokens in the last ${DAYS} days.</p>
      <div class="spend"><${Bars} title="Per day" rows=${days} /><${Bars} title="Per model" rows=${models} /><${Bars} title="Per session" rows=${sessions} /></div>`}</section>`;
}

/** @param {{ me: Token }} props */
function Tokens({ me }) {
  const { value, error, reload } = useLoad(() => api.get('/api/tokens'), []);
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState(/** @type {string[]} */ (['read']));
  const [secret, setSecret] = useState('');
  const create = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const token = await api.post('/api/tokens', { body: { name, scopes } });
      setSecret(token.secret ?? '');
      setName('');
      reload();
    } catch (problem) { toast(/** @type {Error} */ (problem).message, 'bad'); }
  };
  const revoke = async (/** @type {Token} */ token) => {
    try {
      await api.remove('/api/tokens/{token}', { params: { token: token.id } });
      reload();
    } catch (problem) { toast(/** @type {Error} */ (problem).message, 'bad'); }
  };
  return html`<section><h2>Tokens</h2><${ErrorNote} error=${error} />
    <div class="table-scroll" tabindex="0" role="region" aria-label="tokens"><table><thead><tr><th>Name</th><th>Kind</th><th>Scopes</th><th class="number">Created</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${(value?.tokens ?? []).filter((it) => it.kind !== 'login').map((it) => html`<tr key=${it.id}><td>${exact(it.name)}${it.id === me.id ? ' (this browser)' : ''}</td><td>${it.kind}</td><td>${it.scopes.join(', ')}</td>
        <td class="number nowrap">${ago(it.created_at)}</td><td class="number"><button class="small danger" aria-label=${`Revoke ${it.name} ${it.id}`} onClick=${() => revoke(it)}>Revoke</button></td></tr>`)}</tbody></table></div>
    ${secret && html`<div class="note good"><span>The token is shown once:</span><${Command} text=${secret} /></div>`}
    <form class="inline-form" onSubmit=${create}><input aria-label="Name of the new token" placeholder="Name" required value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      ${['read', 'prompt', 'decide', 'admin'].map((it) => html`<label key=${it}><input type="checkbox" checked=${scopes.includes(it)}
        onChange=${() => setScopes((old) => (old.includes(it) ? old.filter((one) => one !== it) : [...old, it]))} /> ${it}</label>`)}
      <button disabled=${!name || !scopes.length}>Create token</button></form></section>`;
}

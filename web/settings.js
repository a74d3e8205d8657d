// Settings: the key of this browser, tokens, models and spend.

import { html, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { KeyNotice } from './inbox.js';
import { ago, cost, count, dateTime, tokens } from './text.js';
import { Badge, Command, ErrorNote, PageHead, toast, useLoad } from './ui.js';

/** @typedef {import('./types.js').Session} Session */
/** @typedef {import('./types.js').Token} Token */

/** @param {{ me: Token, keyState: import('./app.js').KeyState }} props */
export function Settings({ me, keyState }) {
  const isAdmin = me.scopes.includes('admin');
  const logOut = async () => {
    await api.post('/api/logout');
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
      <${Spend} />
      ${isAdmin && html`<${Tokens} me=${me} />`}
      <${Models} />
    </div>`;
}

/** Sums by a name, largest first. @param {Session[]} sessions @param {(session: Session) => string} nameOf */
function sums(sessions, nameOf) {
  /** @type {Map<string, { micro: number, tokens: number }>} */
  const all = new Map();
  for (const it of sessions) {
    const name = nameOf(it);
    const sum = all.get(name) ?? { micro: 0, tokens: 0 };
    sum.micro += it.usage.micro_dollars;
    sum.tokens += tokens(it.usage);
    all.set(name, sum);
  }
  return [...all].map(([name, sum]) => ({ name, ...sum }));
}

/** @param {{ title: string, rows: { name: string, micro: number, tokens: number }[] }} props */
function Bars({ title, rows }) {
  const most = Math.max(1, ...rows.map((it) => it.tokens));
  return html`<div><h3>${title}</h3><div class="bars" role="table" aria-label=${title}>${rows.map((it) => html`<div key=${it.name} class="bar-row" role="row">
    <span role="rowheader">${exact(it.name)}</span><span role="cell"><span class="bar" style=${{ display: 'block', width: `${(it.tokens / most) * 100}%` }}></span></span>
    <span class="number" role="cell">${count(it.tokens)}</span><span class="number" role="cell">${cost(it.micro)}</span></div>`)}</div></div>`;
}

/** Sessions that sums cover. */
const RECENT = 1000;

function Spend() {
  const { value, error } = useLoad(() => api.get(`/api/sessions?limit=${RECENT}`), []);
  // The usage of a session includes that of its tasks.
  const sessions = /** @type {Session[]} */ (value?.sessions ?? []).filter((it) => !it.parent && it.usage.turns > 0);
  const days = sums(sessions, (it) => new Date(it.updated_at).toLocaleDateString('sv')).sort((a, b) => (a.name < b.name ? 1 : -1)).slice(0, 14);
  const models = sums(sessions, (it) => it.model ?? 'default model').sort((a, b) => b.tokens - a.tokens);
  return html`<section><h2>Spend</h2><${ErrorNote} error=${error} />
    ${value && !sessions.length && html`<p class="dim">No model has been called yet.</p>`}
    ${sessions.length > 0 && html`<div class="form-grid"><p class="dim small-text">Tokens and cost of the last ${sessions.length} sessions, by the day of their last turn.</p>
      <${Bars} title="Per day" rows=${days} /><${Bars} title="Per model" rows=${models} /></div>`}</section>`;
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
      const token = await api.post('/api/tokens', { name, scopes });
      setSecret(token.secret);
      setName('');
      reload();
    } catch (problem) { toast(/** @type {Error} */ (problem).message, 'bad'); }
  };
  const revoke = async (/** @type {Token} */ token) => {
    try {
      await api.remove(`/api/tokens/${encodeURIComponent(token.id)}`);
      reload();
    } catch (problem) { toast(/** @type {Error} */ (problem).message, 'bad'); }
  };
  return html`<section><h2>Tokens</h2><${ErrorNote} error=${error} />
    <div class="table-scroll" tabindex="0" role="region" aria-label="tokens"><table><thead><tr><th>Name</th><th>Kind</th><th>Scopes</th><th class="number">Created</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${(value?.tokens ?? []).filter((/** @type {Token} */ it) => it.kind !== 'login').map((/** @type {Token} */ it) => html`<tr key=${it.id}><td>${exact(it.name)}${it.id === me.id ? ' (this browser)' : ''}</td><td>${it.kind}</td><td>${it.scopes.join(', ')}</td>
        <td class="number">${ago(it.created_at)}</td><td class="number"><button class="small danger" aria-label=${`Revoke ${it.name} ${it.id}`} onClick=${() => revoke(it)}>Revoke</button></td></tr>`)}</tbody></table></div>
    ${secret && html`<div class="note good"><span>The token is shown once:</span><${Command} text=${secret} /></div>`}
    <form class="inline-form" onSubmit=${create}><input aria-label="Name of the new token" placeholder="Name" required value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      ${['read', 'prompt', 'decide', 'admin'].map((it) => html`<label key=${it}><input type="checkbox" checked=${scopes.includes(it)}
        onChange=${() => setScopes((old) => (old.includes(it) ? old.filter((one) => one !== it) : [...old, it]))} /> ${it}</label>`)}
      <button disabled=${!name || !scopes.length}>Create token</button></form></section>`;
}

function Models() {
  const { value, error } = useLoad(() => api.get('/v1/models').catch((problem) => {
    if (problem.status === 404) return null;
    throw problem;
  }), []);
  const models = /** @type {any[]} */ (value?.data ?? []);
  return html`<section><h2>Models</h2><${ErrorNote} error=${error} />
    ${models.length > 0 ? html`<p>${models.map((it) => html`<${Badge} key=${it.id}>${exact(it.id)}<//> `)}</p>` : html`<${Command} text="rye models list" />`}</section>`;
}

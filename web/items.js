// Items: search, signature state, source, and a form that runs a tool.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { Code, Json, exact, languageOf } from './highlight.js';
import { Markdown } from './markdown.js';
import { words } from './text.js';
import { Badge, Empty, ErrorNote, PageHead, tone, useKeys, useLoad } from './ui.js';

/** @param {any} hit @returns {{ kind: string, id: string }} */
const itemOf = (hit) => ({ kind: hit.type, id: hit.id });

/** The address of an item in the console. @param {{ kind: string, id: string }} item */
const link = ({ kind, id }) => `#/items/${kind}/${encodeURIComponent(id)}`;

/** @param {string} state */
const stateTone = (state) => (['verified', 'partial'].includes(state) ? 'good' : ['unsigned', 'waived'].includes(state) ? 'warn' : 'bad');

/** @param {{ kind: string, id: string }} props */
export function Items({ kind, id }) {
  const [query, setQuery] = useState('');
  const [only, setOnly] = useState('');
  const [space, setSpace] = useState('');
  const [words_, setWords] = useState('');
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const timer = setTimeout(() => setWords(query), 150);
    return () => clearTimeout(timer);
  }, [query]);
  const { value, error } = useLoad(() => {
    return api.get('/api/items', { query: { query: words_, limit: 200, kind: only, space } });
  }, [words_, only, space]);
  const hits = /** @type {any[]} */ (value?.hits ?? []);
  const at = hits.findIndex((hit) => { const it = itemOf(hit); return it.id === id && it.kind === kind; });
  const open = (/** @type {number} */ index) => { if (hits[index]) location.hash = link(itemOf(hits[index])); };
  useKeys({ '/': () => search.current?.focus(), j: () => open(at + 1), k: () => open(Math.max(0, at - 1)) });

  return html`<div class=${`split ${id ? 'has-detail' : ''}`}>
    <div class="pane list-pane">
      <${PageHead} title="Items">
        <input ref=${search} type="search" class="search" placeholder="Search  /" aria-label="Search items" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} />
        <select aria-label="Kind" value=${only} onChange=${(/** @type {any} */ event) => setOnly(event.target.value)}>
          <option value="">any kind</option>${['tool', 'directive', 'knowledge', 'config'].map((it) => html`<option>${it}</option>`)}</select>
        <select aria-label="Space" value=${space} onChange=${(/** @type {any} */ event) => setSpace(event.target.value)}>
          <option value="">any space</option>${['project', 'user', 'system'].map((it) => html`<option>${it}</option>`)}</select>
      <//>
      <${ErrorNote} error=${error} />
      ${value && !hits.length && html`<${Empty} title="No item matches" />`}
      <ul class="rows" aria-label="Items">${hits.map((hit) => {
        const item = itemOf(hit);
        const state = hit.signature?.state;
        return html`<li key=${`${item.kind}:${item.id}`} class=${`row ${item.id === id && item.kind === kind ? 'current' : ''}`}>
          <a href=${link(item)} aria-current=${item.id === id && item.kind === kind ? 'true' : undefined}>
            <span class="row-title">${exact(item.id)}</span>
            <span class="row-meta"><span>${item.kind}</span><span>${hit.space}</span>${state && html`<${Badge} kind=${stateTone(state)}>${state}<//>`}
              <span>${exact(String(hit.description ?? '').slice(0, 90))}</span></span>
          </a></li>`;
      })}</ul>
    </div>
    <div class="pane detail-pane">${id
      ? html`<a class="back" href="#/items">‹ Items</a><${Item} key=${`${kind}:${id}`} kind=${kind} id=${id} />`
      : html`<${Empty} title="Choose an item" />`}</div>
  </div>`;
}

/** @param {{ kind: string, id: string }} props */
function Item({ kind, id }) {
  const { value, error } = useLoad(() => api.get('/api/items/{kind}/{id}', { params: { kind, id } }), [kind, id]);
  if (error) return html`<${PageHead} title=${id} /><${ErrorNote} error=${error} />`;
  if (!value) return null;
  const check = value.verification ?? {};
  const fields = value.metadata ?? {};
  const isGraph = fields.tool_type === 'graph';
  const isRuntime = ['runtime', 'primitive'].includes(fields.tool_type);
  const facts = { Path: value.path, Space: value.space, Hash: check.hash, Signer: [check.owner, check.signer].filter(Boolean).join(' · '), Signed: check.time, Version: fields.version, Runtime: fields.executor_id, Risk: fields.risk };
  return html`<div class="page"><${PageHead} title=${exact(id)}><${Badge} kind=${stateTone(check.state)}>${check.state}<//><//>
    <section>${fields.description && html`<p>${exact(fields.description)}</p>`}</section>
    <section><dl class="facts">${Object.entries(facts).filter(([, it]) => it).map(([label, it]) =>
      html`<div class="fact"><dt>${label}</dt><dd><code>${exact(String(it))}</code></dd></div>`)}</dl></section>
    ${value.chain?.length > 0 && html`<section><h2>Chain</h2><p class="dim small-text">The files that a call runs, in this order. Rye verifies each of them first.</p>
      <div class="table-scroll" tabindex="0" role="region" aria-label="chain"><table><thead><tr><th>Item</th><th>Space</th><th>Hash</th><th>Signed by</th></tr></thead>
      <tbody>${value.chain.map((/** @type {any} */ it) => html`<tr key=${it.id}><td>${it.id === id ? exact(it.id) : html`<a href=${link({ kind: 'tool', id: it.id })}>${exact(it.id)}</a>`}</td><td>${it.space}</td>
        <td><code title=${it.hash}>${it.hash.slice(0, 16)}</code></td><td>${it.signer ? html`${exact(it.owner ?? '')} <code class="dim">${it.signer}</code>` : html`<${Badge} kind="bad">unsigned<//>`}</td></tr>`)}</tbody></table></div></section>`}
    ${value.chain_error && html`<section><p class="note bad">It cannot run: ${exact(value.chain_error)}</p></section>`}
    ${kind === 'tool' && !isRuntime && html`<section><h2>Run</h2><${RunForm} id=${id} schema=${value.schema} isGraph=${isGraph} /></section>`}
    <section><h2>Source</h2>${String(value.path).endsWith('.md') && kind !== 'tool'
      ? html`<${Markdown} text=${value.content} />` : html`<${Code} text=${value.content} language=${languageOf(String(value.path))} label="source" />`}</section>
    ${value.shadowed?.length > 0 && html`<section><h2>Shadows</h2><${Json} value=${value.shadowed} /></section>`}
  </div>`;
}

/** The value of a form field. @param {any} schema @param {string} text */
function parseField(schema, text) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === 'integer' || type === 'number') return Number(text);
  if (type === 'object' || type === 'array' || (!type && /^[[{"]/.test(text))) return JSON.parse(text);
  return text;
}

/** What a person has entered, by tool: they may leave the page to approve the call. @type {Map<string, Record<string, any>>} */
const drafts = new Map();

/** @param {{ id: string, schema: any, isGraph: boolean }} props */
function RunForm({ id, schema, isGraph }) {
  const properties = /** @type {Record<string, any>} */ (schema?.properties ?? {});
  const required = new Set(schema?.required ?? []);
  const [values, change] = useState(() => drafts.get(id) ?? {});
  /** @param {(old: Record<string, any>) => Record<string, any>} update */
  const setValues = (update) => {
    const next = update(drafts.get(id) ?? {});
    drafts.set(id, next);
    change(next);
  };
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  /** @param {boolean} dry */
  const run = async (dry) => {
    setBusy(true);
    setError(null);
    setResult(null);
    try {
      const parameters = Object.fromEntries(Object.entries(values).filter(([, it]) => it !== '' && it !== undefined)
        .map(([name, it]) => [name, typeof it === 'string' ? parseField(properties[name] ?? {}, it) : it]));
      const body = { parameters: /** @type {any} */ (parameters), dry_run: dry };
      const reply = isGraph ? await api.post('/api/graphs/{id}/runs', { params: { id }, body })
        : await api.post('/api/items/tool/{id}/execute', { params: { id }, body });
      if (isGraph && reply.session) location.hash = `#/runs/${encodeURIComponent(reply.session)}`;
      setResult(reply);
    } catch (problem) { setError(/** @type {Error} */ (problem)); } finally { setBusy(false); }
  };
  return html`<form class="form-grid" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(false); }}>
    ${Object.entries(properties).map(([name, field]) => {
      const set = (/** @type {any} */ value) => setValues((old) => ({ ...old, [name]: value }));
      const hint = field.default !== undefined ? JSON.stringify(field.default) : '';
      const label = html`${name}${required.has(name) ? ' *' : ''}${field.description ? html` <span class="dim">– ${exact(field.description)}</span>` : ''}`;
      if (field.type === 'boolean') {
        return html`<label key=${name}><input type="checkbox" checked=${!!(values[name] ?? field.default)} onChange=${(/** @type {any} */ event) => set(event.target.checked)} /> ${label}</label>`;
      }
      if (Array.isArray(field.enum)) {
        return html`<label key=${name} class="field"><span>${label}</span><select value=${values[name] ?? ''} onChange=${(/** @type {any} */ event) => set(event.target.value)}>
          <option value="">${hint || '–'}</option>${field.enum.map((/** @type {any} */ it) => html`<option value=${it}>${String(it)}</option>`)}</select></label>`;
      }
      const isNumber = field.type === 'integer' || field.type === 'number';
      const isLong = field.type === 'object' || field.type === 'array' || /content|text|script|command|body/.test(name);
      return html`<label key=${name} class="field"><span>${label}</span>${isLong
        ? html`<textarea class="mono" rows="3" placeholder=${hint} required=${required.has(name)} value=${values[name] ?? ''} onInput=${(/** @type {any} */ event) => set(event.target.value)}></textarea>`
        : html`<input type=${isNumber ? 'number' : 'text'} step=${field.type === 'number' ? 'any' : undefined} placeholder=${hint} required=${required.has(name)} value=${values[name] ?? ''} onInput=${(/** @type {any} */ event) => set(event.target.value)} />`}</label>`;
    })}
    ${!Object.keys(properties).length && html`<p class="dim">This tool takes no parameters.</p>`}
    <div class="buttons"><button class="primary" disabled=${busy}>${busy ? 'Running…' : 'Run'}</button><button type="button" disabled=${busy} onClick=${() => run(true)}>Check only</button></div>
    <${ErrorNote} error=${error} />
    ${result?.status === 'waiting' && html`<p class="note"><span>This call waits for <a href=${`#/inbox/${encodeURIComponent(result.gate)}`}>a decision</a>. Run it again after the approval.</span></p>`}
    ${result && result.status !== 'waiting' && html`<div><${Badge} kind=${tone(result.status ?? 'success')}>${words(String(result.status ?? 'done'))}<//><${Json} value=${result} label="result" /></div>`}
  </form>`;
}

// A gate: what would run, who vouches for it, and the decision.

import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact-htm.js';
import { api, serverTime } from './api.js';
import { Code, Diff, Json, exact } from './highlight.js';
import { inexact } from './json.js';
import { sign } from './keys.js';
import { ago, clock, dateTime, shortId } from './text.js';
import { Badge, Command, tone } from './ui.js';

/** @typedef {import('./types.js').ShownGate} ShownGate */
/** @typedef {import('./types.js').Gate} Gate */
/** @typedef {{ name: string, key: import('./keys.js').Key | null, trusted: boolean }} Signer */

/** Who decides, and with which key. */
export const SignerContext = createContext(/** @type {Signer} */ ({ name: '', key: null, trusted: false }));

/**
 * The body of a decision, signed by this browser if it can.
 * @param {Signer} signer @param {ShownGate} shown @param {string} action @param {unknown} value
 */
export async function decision(signer, shown, action, value) {
  const body = { action, ...(value === null ? {} : { value }) };
  if (!signer.key || !signer.trusted) return body;
  const at = serverTime();
  const receipt = await sign(signer.key, shown.raw, { action, value, by: signer.name, at });
  return { ...body, receipt };
}

/**
 * Decides a gate.
 * @param {Signer} signer @param {ShownGate} shown @param {string} action @param {unknown} [value]
 */
export async function decide(signer, shown, action, value = null) {
  const body = await decision(signer, shown, action, value);
  return api.post(`/api/gates/${encodeURIComponent(shown.gate.id)}/decision`, body);
}

/** What a gate is about, in one word. @param {Gate} gate */
export const kindOf = (gate) =>
  gate.kind === 'credential_request' ? 'credential' : gate.kind;

/** The label of a button. @param {import('./types.js').Action} action */
const labelOf = ({ id, label }) => {
  const text = label || id.replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
};

/** @param {{ label: string, children?: any }} props */
const Row = ({ label, children }) => html`<div class="fact"><dt>${label}</dt><dd>${children}</dd></div>`;

/** Arguments: text as it is, everything else as JSON. @param {{ args: any }} props */
function Arguments({ args }) {
  if (args === null || typeof args !== 'object' || Array.isArray(args)) return html`<${Json} value=${args} label="arguments" />`;
  const entries = Object.entries(args);
  if (!entries.length) return html`<p class="dim">No arguments</p>`;
  return entries.map(([name, value]) => html`<div key=${name} class="argument">
    <p class="argument-name">${exact(name)}</p>
    ${typeof value === 'string'
      ? html`<${Code} text=${value} language=${name === 'command' ? 'shell' : 'code'} label=${name} />`
      : html`<${Json} value=${value} label=${name} />`}
  </div>`);
}

/** Facts about where the call would run. @param {{ gate: Gate }} props */
function Facts({ gate }) {
  const context = gate.context ?? {};
  const reasons = [context.reason, ...(context.reasons ?? [])].filter(Boolean);
  const sandbox = context.sandbox;
  const text = (/** @type {any} */ value) => (typeof value === 'string' ? value : JSON.stringify(value));
  return html`<dl class="facts">
    ${reasons.length > 0 && html`<${Row} label="Why it asks">${reasons.map((it) => html`<p>${exact(text(it))}</p>`)}<//>`}
    ${context.resolved_path && html`<${Row} label="Resolves to"><code>${exact(text(context.resolved_path))}</code><//>`}
    ${context.working_dir && html`<${Row} label="Directory"><code>${exact(context.working_dir)}</code><//>`}
    ${sandbox && html`<${Row} label="Sandbox">${typeof sandbox === 'string' ? sandbox
      : Object.entries(sandbox).map(([key, value]) => html`<span class="pair"><span class="dim">${key}</span> <code>${exact(text(value))}</code></span>`)}<//>`}
    ${['grants', 'protected', 'connection'].map((key) => context[key]
      && html`<${Row} label=${key[0].toUpperCase() + key.slice(1)}><code>${exact(text(context[key]))}</code><//>`)}
    ${context.space && html`<${Row} label="Space">${context.space}<//>`}
    <${Row} label="Session"><a href=${`#/session/${encodeURIComponent(gate.origin.session)}`}>${shortId(gate.origin.session)}</a><//>
    <${Row} label="Asked"><time title=${dateTime(gate.created_at)}>${clock(gate.created_at)} (${ago(gate.created_at)})</time><//>
    ${gate.expires_at && html`<${Row} label="Expires">${dateTime(gate.expires_at)}<//>`}
  </dl>`;
}

/** The files that would run, and who signed them. @param {{ components: any[], level: string }} props */
function Components({ components, level }) {
  return html`<section><${level}>Files that would run<//><table class="grid">
    <thead><tr><th>File</th><th>Hash</th><th>Signed by</th></tr></thead>
    <tbody>${components.map((it) => html`<tr key=${it.name}>
      <td><code>${exact(it.name)}</code></td>
      <td><code title=${it.hash}>${it.hash.slice(0, 16)}</code></td>
      <td>${it.signed_by ? exact(it.signed_by) : html`<${Badge} kind="bad">unsigned<//>`}</td>
    </tr>`)}</tbody></table></section>`;
}

/**
 * @param {{ shown: ShownGate, onDone: (gate: Gate, outcome: { action: string, error?: Error }) => void, handle?: { current: any }, compact?: boolean }} props
 */
export function GateView({ shown, onDone, handle, compact = false }) {
  const { gate } = shown;
  const context = gate.context ?? {};
  const signer = useContext(SignerContext);
  const [diff, setDiff] = useState(/** @type {string | null} */ (null));
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const [denying, setDenying] = useState(false);
  const [text, setText] = useState('');
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const focus = useRef(/** @type {HTMLElement | null} */ (null));

  useEffect(() => {
    if (!context.change_set) return;
    api.get(`/api/gates/${encodeURIComponent(gate.id)}`).then((it) => setDiff(it.diff ?? null), () => {});
  }, [gate.id]);
  // Before the next key.
  useLayoutEffect(() => focus.current?.focus(), [draft === null, denying]);

  /** @param {string} action @param {unknown} [value] */
  const act = async (action, value = null) => {
    if (busy) return;
    setError('');
    if (draft !== null && action !== 'deny') {
      try {
        const edited = JSON.parse(draft);
        const reason = inexact(edited);
        if (reason) return setError(reason);
        value = { arguments: edited };
      } catch (problem) {
        return setError(`the arguments are not JSON: ${/** @type {Error} */ (problem).message}`);
      }
    }
    if (context.raise_to !== undefined && action !== 'deny' && text) value = Number(text);
    setBusy(true);
    try {
      await decide(signer, shown, action, value);
      onDone(gate, { action });
    } catch (problem) {
      const known = /** @type {any} */ (problem);
      setError(known.message);
      if (known.code === 'decision_gate_conflict' || known.code === 'gate_closed') onDone(gate, { action, error: known });
    } finally {
      setBusy(false);
    }
  };
  const edit = () => {
    if (context.editable) setDraft(draft === null ? JSON.stringify(context.params, null, 2) : null);
  };
  const approve = gate.actions.find((it) => it.id === 'approve');
  const deny = gate.actions.find((it) => it.id === 'deny');
  if (handle) {
    handle.current = {
      approve: () => approve && act('approve'),
      deny: () => deny && setDenying(true),
      edit,
    };
  }
  // Headings of sections, below the title.
  const level = compact ? 'h3' : 'h2';
  const others = gate.actions.filter((it) => it !== deny && it !== approve);
  // An interrupted call: the person says what came of it.
  const hasResult = gate.actions.some((it) => it.id === 'result');
  const risk = context.risk;
  const signedBy = signer.key && signer.trusted ? 'Signed with the key of this browser' : 'Signed with the key of the server';

  return html`<article class=${`gate ${compact ? 'compact' : ''}`} aria-label=${`Gate: ${gate.title}`}>
    <header>
      <div class="badges">
        <${Badge}>${kindOf(gate)}<//>
        ${risk && html`<${Badge} kind=${tone(risk)}>${risk} risk<//>`}
        ${context.drift && html`<${Badge} kind="bad">changed definition<//>`}
        <${Badge}>${gate.origin.tool}<//>
      </div>
      ${compact ? html`<h2>${exact(gate.title)}</h2>` : html`<h1>${exact(gate.title)}</h1>`}
    </header>
    <div class="gate-body">
      ${draft !== null ? html`<section>
          <${level}><label for="edited">Arguments</label><//>
          <textarea id="edited" ref=${focus} class="mono" rows=${Math.min(24, draft.split('\n').length + 1)} spellcheck="false"
            value=${draft} onInput=${(/** @type {any} */ event) => setDraft(event.target.value)}></textarea>
        </section>`
        : context.params !== undefined && html`<section><${level}>Arguments<//><${Arguments} args=${context.params} /></section>`}
      ${gate.body && html`<section><${level}>Question<//><${Code} text=${gate.body} language=${gate.title.startsWith('run: ') ? 'shell' : ''} label="question" /></section>`}
      ${diff && html`<section><${level}>Changes<//><${Diff} text=${diff} /></section>`}
      <${Facts} gate=${gate} />
      ${context.components?.length > 0 && html`<${Components} components=${context.components} level=${level} />`}
      ${context.chain_hash && html`<p class="dim small-text">Bound to the chain <code>${context.chain_hash.slice(0, 16)}</code> and the arguments <code>${(context.args_hash ?? '').slice(0, 16)}</code></p>`}
      ${!compact && html`<details class="raw"><summary>Everything that the decision covers</summary><${Json} value=${gate} label="gate" /></details>`}
    </div>
    <footer>
      ${error && html`<p class="note bad" role="alert">${error}</p>`}
      ${context.raise_to !== undefined && html`<label class="field">New limit
        <input type="number" min="1" value=${text} placeholder=${String(context.raise_to)} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>`}
      ${denying && html`<form class="inline-form" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); act('deny', text || null); }}>
        <input ref=${focus} aria-label="Reason for the model, optional" placeholder="Reason for the model (optional)" value=${text}
          onInput=${(/** @type {any} */ event) => setText(event.target.value)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Escape') setDenying(false); }} />
        <button class="danger" disabled=${busy}>Deny</button>
        <button type="button" onClick=${() => setDenying(false)}>Cancel</button>
      </form>`}
      ${!gate.actions.length && html`<form class="inline-form" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); act('answer', text); }}>
        <input aria-label="Answer" placeholder="Answer" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
        <button class="primary" disabled=${busy || !text}>Answer</button>
      </form>`}
      ${!gate.actions.length && context.options?.length > 0 && html`<div class="buttons" role="group" aria-label="Suggested answers">
        ${context.options.map((/** @type {string} */ it) => html`<button key=${it} disabled=${busy} onClick=${() => act('answer', it)}>${exact(it)}</button>`)}</div>`}
      ${context.vault && html`<${Command} text=${`rye vault set ${context.vault}`} />`}
      ${hasResult && html`<label class="field">Result of the call
        <input value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>`}
      ${!denying && gate.actions.length > 0 && html`<div class="buttons">
        ${approve && html`<button class="primary" disabled=${busy} onClick=${() => act('approve')}>${draft !== null ? 'Approve edited' : labelOf(approve)}<kbd>a</kbd></button>`}
        ${deny && html`<button class="danger" disabled=${busy} onClick=${() => setDenying(true)}>${labelOf(deny)}<kbd>d</kbd></button>`}
        ${context.editable && html`<button disabled=${busy} onClick=${edit}>${draft === null ? 'Edit' : 'Discard edit'}<kbd>e</kbd></button>`}
        ${others.map((it) => html`<button key=${it.id} disabled=${busy} onClick=${() => act(it.id, it.id === 'result' ? text : null)}>${labelOf(it)}</button>`)}
      </div>`}
      <p class="dim small-text">${signedBy}.</p>
    </footer>
  </article>`;
}

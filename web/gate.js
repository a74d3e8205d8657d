// A gate: what would run, who vouches for it, and the decision.

import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact-htm.js';
import { api, serverTime } from './api.js';
import { Arguments, Fold, Prose, loadBlob } from './entries.js';
import { Code, Diff, Json, exact, languageOf } from './highlight.js';
import { inexact } from './json.js';
import { sign } from './keys.js';
import { ago, clock, dateTime, shortId } from './text.js';
import { Badge, Command, tone, useLoad } from './ui.js';

/** @typedef {import('./types.js').ShownGate} ShownGate */
/** @typedef {import('./types.js').Gate} Gate */
/** @typedef {{ name: string, key: import('./keys.js').Key | null, trusted: boolean }} Signer */
/** @typedef {{ name: string, hash: string, signed_by?: string | null, source?: string | null }} Component */

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
  const receipt = /** @type {any} */ (await sign(signer.key, shown.raw, { action, value, by: signer.name, at }));
  return { ...body, receipt };
}

/**
 * Decides a gate.
 * @param {Signer} signer @param {ShownGate} shown @param {string} action @param {unknown} [value]
 */
async function decide(signer, shown, action, value = null) {
  const body = await decision(signer, shown, action, value);
  return api.post('/api/gates/{gate}/decision', { params: { gate: shown.gate.id }, body });
}

/** What a gate is about, in one word. @param {Gate} gate */
export const kindOf = (gate) => (gate.kind === 'credential_request' ? 'credential' : gate.kind);

/** The label of a button. @param {import('./types.js').Action} action */
const labelOf = ({ id, label }) => {
  const text = label || id.replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
};

/** @param {{ label: string, children?: any }} props */
const Row = ({ label, children }) => html`<div class="fact"><dt>${label}</dt><dd>${children}</dd></div>`;

/** Why a path is sensitive, in words. @type {Record<string, string>} */
const PATHS = {
  outside: 'The file is outside of the workspace.',
  unresolvable: 'The links of the path form a loop.',
  hidden_in_home: 'It is a hidden file in a home directory.',
  behaviour: 'Files there decide what programs do later.',
  dependency: 'Programs load code from there.',
  variables: 'It sets variables of programs.',
  hard_link: 'The file has other hard links, which may be anywhere.',
  home: 'The workspace is or contains a home directory.',
  no_project: 'The workspace is not a project.',
};

/** What the sandboxes that confine nothing, or everything, permit. @type {Record<string, string>} */
const SANDBOXES = {
  local: 'None. It can use every file and the network, like a program that you start.',
  virtual: 'In memory. It reaches no file and no network.',
  docker: 'A container with the project.',
  remote: 'Another machine.',
};

/** What a confined call may touch, in words. @type {Record<string, string>} */
const ACCESS = {
  'files memory': 'files in memory',
  'files workspace': 'files of the project',
  'files host': 'all your files',
  'network none': 'no network',
  'network proxied': 'hosts that the policy or a person allows',
  'network host': 'the whole network',
  'processes none': 'no processes',
  'processes own': 'its own processes',
  'processes host': 'all your processes',
};

/** Facts about where the call would run, and what it may touch. @param {{ gate: Gate, sandbox: string }} props */
function Facts({ gate, sandbox }) {
  const context = gate.context ?? {};
  const reasons = [context.reason, ...(context.reasons ?? [])].filter(Boolean);
  const confined = context.sandbox;
  const text = (/** @type {any} */ value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const isCall = context.params !== undefined && gate.kind === 'approval';
  return html`<dl class="facts">
    ${reasons.length > 0 && html`<${Row} label="Why it asks">${reasons.map((it) => html`<p>${exact(PATHS[it] ?? text(it))}</p>`)}<//>`}
    ${context.resolved_path && html`<${Row} label="Resolves to"><code>${exact(text(context.resolved_path))}</code><//>`}
    ${context.working_dir && html`<${Row} label="Directory"><code>${exact(context.working_dir)}</code><//>`}
    ${confined ? html`<${Row} label="May touch">${Object.entries(confined).map(([key, value]) => html`<span class="pair" title=${`${key}: ${text(value)}`}>${
        ACCESS[`${key} ${value}`] ?? html`<span class="dim">${key}</span> <code>${exact(text(value).slice(0, 40))}</code>`}</span>`)}<//>`
      : isCall && SANDBOXES[sandbox] && html`<${Row} label="Sandbox">${SANDBOXES[sandbox]}<//>`}
    ${[['grants', 'In addition'], ['protected', 'Protected files'], ['connection', 'Connects to']].map(([key, label]) => context[key]
      && html`<${Row} label=${label}><code>${exact(text(context[key]))}</code><//>`)}
    ${context.space && html`<${Row} label="Space">${context.space}<//>`}
    <${Row} label="Session"><a href=${`#/session/${encodeURIComponent(gate.origin.session)}`}>${shortId(gate.origin.session)}</a><//>
    <${Row} label="Asked"><time title=${dateTime(gate.created_at)}>${clock(gate.created_at)} (${ago(gate.created_at)})</time><//>
    ${gate.expires_at && html`<${Row} label="Expires">${dateTime(gate.expires_at)}<//>`}
  </dl>`;
}

/** The exact bytes of a file that would run. @param {Gate} gate @param {Component} component */
async function loadFile(gate, component) {
  if (component.source) return { text: await (await loadBlob(gate.origin.session, component.source)).text(), path: component.name };
  const [kind, id] = component.name.includes(':') ? component.name.split(':') : ['tool', component.name];
  const item = await api.get('/api/items/{kind}/{id}', { params: { kind, id } });
  if (item.verification?.hash !== component.hash) throw new Error('the file has changed since the question');
  return { text: String(item.content), path: String(item.path) };
}

/** A file that would run: its signer, its hash and, when opened, its bytes. @param {{ gate: Gate, component: Component }} props */
function File({ gate, component }) {
  const [open, setOpen] = useState(false);
  const { value, error } = useLoad(() => (open ? loadFile(gate, component) : Promise.resolve(null)), [open]);
  return html`<details class="component" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><code class="component-name">${exact(component.name)}</code>
      <code class="dim" title=${component.hash}>${component.hash.slice(0, 16)}</code>
      <span class="component-signer">${component.signed_by ? html`signed by ${exact(component.signed_by)}` : html`<${Badge} kind="bad">unsigned<//>`}</span></summary>
    ${open && error && html`<p class="dim">Its text cannot be shown: ${error.message}.</p>`}
    ${open && value && html`<${Code} text=${value.text} language=${languageOf(value.path)} label=${component.name} />`}
  </details>`;
}

/**
 * @param {{ shown: ShownGate, onDone: (gate: Gate, outcome: { action: string, error?: Error }) => void, handle?: { current: any }, compact?: boolean, more?: number }} props
 */
export function GateView({ shown, onDone, handle, compact = false, more = 0 }) {
  const { gate } = shown;
  const context = gate.context ?? {};
  const signer = useContext(SignerContext);
  const [details, setDetails] = useState(/** @type {any} */ ({}));
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const [denying, setDenying] = useState(false);
  const [text, setText] = useState('');
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const focus = useRef(/** @type {HTMLElement | null} */ (null));

  useEffect(() => {
    let current = true;
    api.get('/api/gates/{gate}', { params: { gate: gate.id } }).then((it) => current && setDetails(it), () => {});
    return () => { current = false; };
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
  const { risk } = context;
  const signedBy = signer.key && signer.trusted ? 'Signed with the key of this browser' : 'Signed with the key of the server';
  const changes = details.diff ?? (typeof context.changes === 'string' ? context.changes : '');

  return html`<article class=${`gate ${compact ? 'compact' : ''}`} aria-label=${`Gate: ${gate.title}`}>
    <header>
      <div class="badges">
        <${Badge}>${kindOf(gate)}<//>
        ${risk && html`<${Badge} kind=${tone(risk)}>${risk} risk<//>`}
        ${context.drift && html`<${Badge} kind="bad">changed definition<//>`}
        <${Badge}>${gate.origin.tool}<//>
        ${more > 0 && html`<${Badge} kind="warn">${more} more after this<//>`}
      </div>
      ${compact ? html`<h2>${exact(gate.title)}</h2>` : html`<h1>${exact(gate.title)}</h1>`}
    </header>
    <div class="gate-body" tabindex="0" role="region" aria-label="Details of the gate">
      ${details.message && !compact && html`<section class="message"><${level}>What the model says<//><${Prose} text=${details.message} /></section>`}
      ${changes && html`<section><${level}>${details.diff ? 'Changes' : 'Changed since the last approval'}<//><${Diff} text=${changes} /></section>`}
      ${draft !== null ? html`<section>
          <${level}><label for="edited">Arguments</label><//>
          <textarea id="edited" ref=${focus} class="mono" rows=${Math.min(24, draft.split('\n').length + 1)} spellcheck="false"
            value=${draft} onInput=${(/** @type {any} */ event) => setDraft(event.target.value)}></textarea>
        </section>`
        : context.params !== undefined && html`<section><${level}>Arguments<//><${Arguments} args=${context.params} /></section>`}
      ${context.params === undefined && gate.body && html`<section><${level}>Question<//><${Code} text=${gate.body} label="question" /></section>`}
      <${Facts} gate=${gate} sandbox=${details.sandbox ?? ''} />
      ${context.components?.length > 0 && html`<section><${level}>Files that would run<//>
        ${context.components.map((/** @type {Component} */ it) => html`<${File} key=${it.name} gate=${gate} component=${it} />`)}
        ${context.chain_hash && html`<p class="dim small-text">The decision holds for the chain <code>${context.chain_hash.slice(0, 16)}</code> with the arguments <code>${(context.args_hash ?? '').slice(0, 16)}</code>.</p>`}</section>`}
      ${context.params !== undefined && gate.body && (compact ? html`<${Fold} title="Question as recorded"><${Code} text=${gate.body} label="question" /><//>`
        : html`<section><${level}>Question as recorded<//><${Code} text=${gate.body} label="question" /></section>`)}
      ${!compact && html`<${Fold} title="Everything that the decision covers"><${Json} value=${gate} label="gate" /><//>`}
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

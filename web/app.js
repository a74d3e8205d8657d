// The console: routes, navigation, login state and the key of the browser.

import { html, render, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { SignerContext } from './gate.js';
import { Hosts } from './hosts.js';
import { Inbox, useGates } from './inbox.js';
import { Items } from './items.js';
import { canSign, createKey, enrol, ownKey } from './keys.js';
import { Runs } from './runs.js';
import { SessionPage } from './session.js';
import { Sessions } from './sessions.js';
import { Settings } from './settings.js';
import { Command, Empty, Toasts, useKeys } from './ui.js';

/**
 * @typedef {object} KeyState
 * @property {'loading' | 'unsupported' | 'none' | 'pending' | 'trusted'} status
 * @property {import('./keys.js').Key | null} key
 * @property {import('./types.js').BrowserKey | null} enrolment
 * @property {Error | null} error
 * @property {() => void} start creates the key
 */

const PAGES = [
  { name: 'inbox', label: 'Inbox', key: 'i' },
  { name: 'sessions', label: 'Sessions', key: 's' },
  { name: 'runs', label: 'Runs', key: 'r' },
  { name: 'items', label: 'Items', key: 't' },
  { name: 'hosts', label: 'Hosts', key: 'h' },
  { name: 'settings', label: 'Settings', key: ',' },
];

/** The page and its arguments in the address. */
function route() {
  const [page, ...rest] = location.hash.replace(/^#\//, '').split('/').map(decodeURIComponent);
  return { page: page || 'inbox', args: rest };
}

function useRoute() {
  const [current, setCurrent] = useState(route);
  useEffect(() => {
    const onChange = () => setCurrent(route());
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return current;
}

/** How often the server is asked whether a key has been confirmed. */
const CONFIRM_INTERVAL = 2000;

/** @returns {KeyState} */
function useKey() {
  const [state, setState] = useState(/** @type {Omit<KeyState, 'start'>} */ ({
    status: canSign ? 'loading' : 'unsupported', key: null, enrolment: null, error: null,
  }));
  /** @param {import('./keys.js').Key} key */
  const ask = async (key) => {
    try {
      const enrolment = await enrol(key);
      setState({ status: enrolment.trusted ? 'trusted' : 'pending', key, enrolment, error: null });
    } catch (error) {
      setState({ status: 'pending', key, enrolment: null, error: /** @type {Error} */ (error) });
    }
  };
  useEffect(() => {
    if (!canSign) return;
    ownKey().then(
      (key) => (key ? ask(key) : setState((old) => ({ ...old, status: 'none' }))),
      () => setState((old) => ({ ...old, status: 'unsupported' })),
    );
  }, []);
  useEffect(() => {
    if (state.status !== 'pending' || !state.key) return;
    const { key } = state;
    const timer = setInterval(() => ask(key), CONFIRM_INTERVAL);
    return () => clearInterval(timer);
  }, [state.status, state.key]);
  return {
    ...state,
    start: () => createKey().then(ask, () => setState((old) => ({ ...old, status: 'unsupported' }))),
  };
}

/** @param {{ me: import('./types.js').Token }} props */
function Shell({ me }) {
  const { page, args } = useRoute();
  const inbox = useGates();
  const keyState = useKey();
  const [help, setHelp] = useState(false);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const waiting = inbox.gates?.length ?? 0;
  const current = page === 'session' ? 'sessions' : page === 'run' ? 'runs' : page;

  useKeys({
    '?': () => setHelp((it) => !it),
    Escape: () => setHelp(false),
    g: () => {
      const once = (/** @type {KeyboardEvent} */ event) => {
        const target = PAGES.find((it) => it.key === event.key);
        if (target) {
          event.preventDefault();
          event.stopPropagation();
          location.hash = `#/${target.name}`;
        }
      };
      addEventListener('keydown', once, { once: true, capture: true });
    },
  });
  useEffect(() => {
    const label = PAGES.find((it) => it.name === current)?.label ?? 'Rye';
    document.title = waiting ? `(${waiting}) ${label} · Rye` : `${label} · Rye`;
  }, [current, waiting]);

  const signer = { name: me.user ?? me.name, key: keyState.key, trusted: keyState.status === 'trusted' };
  /** @type {Record<string, () => any>} */
  const pages = {
    inbox: () => html`<${Inbox} id=${args[0] ?? ''} inbox=${inbox} keyState=${keyState} />`,
    sessions: () => html`<${Sessions} waiting=${new Set(inbox.gates?.map((it) => it.gate.origin.session))} />`,
    session: () => html`<${SessionPage} key=${args[0]} id=${args[0]} tab=${args[1] ?? 'transcript'} />`,
    runs: () => html`<${Runs} id=${args[0] ?? ''} />`,
    items: () => html`<${Items} kind=${args[0] ?? ''} id=${args.slice(1).join('/')} />`,
    hosts: () => html`<${Hosts} />`,
    settings: () => html`<${Settings} me=${me} keyState=${keyState} />`,
  };
  const show = pages[page];
  return html`<${SignerContext.Provider} value=${signer}>
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); main.current?.focus(); }}>Skip to content</a>
    <div class="shell">
      <nav class="nav" aria-label="Pages">
        <a class="brand" href="#/inbox" aria-label="Rye console"><img src="/console/icon.svg" alt="" width="20" height="20" /><span>Rye</span></a>
        ${PAGES.map((it) => html`<a key=${it.name} href=${`#/${it.name}`} aria-current=${it.name === current ? 'page' : undefined} title=${`g ${it.key}`}>
          <span>${it.label}</span>
          ${it.name === 'inbox' && waiting > 0 && html`<span class="count" aria-label=${`${waiting} pending`}>${waiting}</span>`}
        </a>`)}
        <button class="nav-help" onClick=${() => setHelp(true)} aria-label="Keyboard shortcuts">?</button>
      </nav>
      <main id="main" ref=${main} tabindex="-1">${show ? show() : html`<${Empty} title="There is no such page" />`}</main>
    </div>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
    <${Toasts} />
  <//>`;
}

const SHORTCUTS = [
  ['j, k', 'next, previous: gate, entry, item, run'],
  ['a', 'approve'],
  ['d', 'deny, with a reason'],
  ['e', 'edit the arguments'],
  ['x, X', 'select a gate, or all, for a decision about several'],
  ['o', 'open the session of a gate'],
  ['n', 'new session'],
  ['G', 'end of the transcript'],
  ['/', 'filter or search'],
  ['g i, g s, g r, g t, g h, g ,', 'inbox, sessions, runs, items, hosts, settings'],
  ['Ctrl Enter', 'send the prompt'],
  ['?', 'this list'],
];

/** @param {{ onClose: () => void }} props */
function Help({ onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog ref=${dialog} class="help" aria-label="Keyboard shortcuts" onClose=${onClose}>
    <h2>Keyboard</h2>
    <dl>${SHORTCUTS.map(([keys, what]) => html`<div><dt>${keys.split(', ').map((it) => html`<kbd>${it}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <button onClick=${() => dialog.current?.close()}>Close</button>
  </dialog>`;
}

function LoggedOut() {
  return html`<main class="logged-out"><div>
    <h1>Rye</h1>
    <p>This browser is not logged in. Print a login link in a terminal on the server:</p>
    <${Command} text=${`rye token login --url ${location.origin}`} />
  </div></main>`;
}

function App() {
  const [me, setMe] = useState(/** @type {import('./types.js').Token | null | undefined} */ (undefined));
  const [problem, setProblem] = useState('');
  useEffect(() => {
    const load = () => api.get('/api/tokens/self').then(
      (token) => { setMe(token); setProblem(''); },
      (error) => {
        if (error.status === 401) return setMe(null);
        setProblem(error.message);
        setTimeout(load, 2000);
      },
    );
    load();
    const onLogout = () => setMe(null);
    addEventListener('rye:logged-out', onLogout);
    return () => removeEventListener('rye:logged-out', onLogout);
  }, []);
  if (problem) return html`<main class="logged-out"><p role="alert">${problem}</p></main>`;
  if (me === undefined) return null;
  return me ? html`<${Shell} me=${me} />` : html`<${LoggedOut} />`;
}

const root = document.getElementById('app');
if (root) render(html`<${App} />`, root);

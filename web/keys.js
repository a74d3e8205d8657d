// The key of this browser. It signs decisions; its private half cannot leave the browser.

import { api } from './api.js';
import { base64, canonical, members, sha256 } from './json.js';

/** @typedef {import('./types.js').Gate} Gate */
/** @typedef {import('./types.js').BrowserKey} BrowserKey */
/** @typedef {{ fingerprint: string, pair: CryptoKeyPair, publicKey: string }} Key */

const ALGORITHM = { name: 'Ed25519' };

/** Whether this browser can sign: it offers Ed25519, and the page came over a secure connection. */
export const canSign = typeof crypto !== 'undefined' && !!crypto.subtle && isSecureContext;

/** @returns {Promise<IDBDatabase>} */
function database() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('rye', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('keys');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * Runs one request on the stored keys.
 * @template T
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<T>} run
 * @returns {Promise<T>}
 */
async function withStore(mode, run) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const transaction = db.transaction('keys', mode);
    const request = run(transaction.objectStore('keys'));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = () => reject(transaction.error);
  });
}

/**
 * @param {CryptoKeyPair} pair
 * @returns {Promise<Key>}
 */
async function describe(pair) {
  const spki = await crypto.subtle.exportKey('spki', pair.publicKey);
  const publicKey = base64(new Uint8Array(spki));
  const pem = `-----BEGIN PUBLIC KEY-----\n${publicKey}\n-----END PUBLIC KEY-----\n`;
  return { pair, publicKey, fingerprint: (await sha256(pem)).slice(0, 16) };
}

/** The key of this browser, if it has one. @returns {Promise<Key | null>} */
export async function ownKey() {
  if (!canSign) return null;
  const pair = await withStore('readonly', (store) => store.get('decisions'));
  return pair ? describe(pair) : null;
}

/** Generates the key of this browser. @returns {Promise<Key>} */
export async function createKey() {
  const pair = /** @type {CryptoKeyPair} */ (
    await crypto.subtle.generateKey(ALGORITHM, false, ['sign', 'verify'])
  );
  await withStore('readwrite', (store) => store.put(pair, 'decisions'));
  return describe(pair);
}

/** A name of this browser for people. */
function browserName() {
  const agent = navigator.userAgent;
  const browser = ['Firefox', 'Edg', 'Chrome', 'Safari'].find((name) => agent.includes(name));
  const system = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac', 'Linux'].find((name) =>
    agent.includes(name));
  return `${browser === 'Edg' ? 'Edge' : browser ?? 'browser'} on ${system ?? 'unknown system'}`;
}

/**
 * Asks the server to trust a key. Repeating it tells whether the key is trusted by now.
 * @param {Key} key @returns {Promise<BrowserKey>}
 */
export function enrol(key) {
  return api.post('/api/browser-keys', { body: { public_key: key.publicKey, name: browserName() } });
}

/** @param {string} purpose @param {string} json */
const hash = (purpose, json) => sha256(`${purpose}\n${json}`);

/**
 * Signs a decision: the same bytes as a terminal.
 * @param {Key} key
 * @param {string} raw the gate, as the server sent it
 * @param {{ action: string, value: unknown, by: string, at: number }} decision
 */
export async function sign(key, raw, { action, value, by, at }) {
  const text = JSON.stringify;
  const parts = members(raw);
  /** @type {Gate} */
  const gate = JSON.parse(raw);
  const names = ['id', 'kind', 'title', 'body', 'actions', 'origin', 'expires_at', 'context', 'created_at'];
  const empty = { context: '{}', expires_at: 'null' };
  const question = names.map((name) =>
    `${text(name)}:${parts.get(name) ?? empty[/** @type {'context'} */ (name)]}`);
  const context = gate.context ?? {};
  const edited = isApproval(action) && context.editable === true
    ? /** @type {any} */ (value)?.arguments : undefined;
  const answer = `{"action":${text(action)},"value":${text(value ?? null)},"by":${text(by)},"at":${at},"source":"web"}`;
  const receipt = {
    session: gate.origin.session,
    gate: gate.id,
    call: gate.origin.call,
    action,
    chain_hash: context.chain_hash ?? null,
    args_hash: edited === undefined ? context.args_hash ?? null : await sha256(canonical(edited)),
    question: await hash('rye gate as shown 1', `{${question.join(',')}}`),
    answer: await hash('rye answer 1', answer),
    by,
    at,
    key: key.fingerprint,
  };
  const digest = await hash('rye receipt 1', text(receipt));
  const message = new TextEncoder().encode(`rye-signature:v1:receipt:${digest}`);
  const bytes = new Uint8Array(await crypto.subtle.sign(ALGORITHM, key.pair.privateKey, message));
  const signature = base64(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  return { ...receipt, signature };
}

/** @param {string} action */
function isApproval(action) {
  return ['approve', 'approve_session', 'approve_prefix', 'approve_project'].includes(action);
}

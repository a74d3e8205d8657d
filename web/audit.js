// Verification and replay of a session, with their results.

import { html } from './vendor/preact-htm.js';
import { Diff, exact } from './highlight.js';

/** Number of findings that are shown. */
const MAX_FINDINGS = 20;

/** What a verification found. @param {{ verdict: any, onClose: () => void }} props */
export function Verdict({ verdict, onClose }) {
  const sessions = verdict.sessions ?? [];
  const findings = sessions.flatMap((/** @type {any} */ it) => it.findings ?? []);
  const unsealed = sessions.flatMap((/** @type {any} */ it) => it.unsealed ?? []);
  const keys = [...new Set(sessions.flatMap((/** @type {any} */ it) => it.keys ?? []))];
  const owners = sessions[0]?.owners ?? {};
  const sum = (/** @type {string} */ key) => sessions.reduce((/** @type {number} */ all, /** @type {any} */ it) => all + (it[key] ?? 0), 0);
  const title = verdict.verified ? '✓ The record is intact'
    : findings.length ? '✗ The record was altered or cannot be verified' : '… The record is not complete yet';
  return html`<section class=${`note ${verdict.verified ? 'good' : findings.length ? 'bad' : ''}`} role="status" aria-label="Verification">
    <strong>${title}</strong>
    <span>${sum('entries')} entries, ${sum('seals')} seals and ${sum('receipts')} receipts were checked${keys.length
      ? html`, signed by ${keys.map((key, i) => html`${i ? ', ' : ''}${exact(owners[key] ?? 'unknown')} (<code>${key}</code>)`)}` : ''}.</span>
    ${verdict.verified && html`<span>Every entry has the hash that the next one and the seal of its turn name, and every decision has a valid signature.</span>`}
    ${findings.length > 0 && html`<ul>${findings.slice(0, MAX_FINDINGS).map((/** @type {any} */ it) => html`<li><code>${exact(it.location)}</code>: ${exact(it.reason)}</li>`)}</ul>`}
    ${findings.length > MAX_FINDINGS && html`<span>and ${findings.length - MAX_FINDINGS} more</span>`}
    ${!findings.length && unsealed.length > 0 && html`<span>The end of a turn seals what it wrote. ${unsealed.length} parts are not sealed yet.</span>`}
    <button class="small" onClick=${onClose}>Close</button>
  </section>`;
}

/** What a replay found. @param {{ replay: import('./types.js').Schemas['Replayed'], onClose: () => void }} props */
export function ReplayResult({ replay, onClose }) {
  const { differences } = replay;
  return html`<section class=${`note ${replay.identical ? 'good' : 'bad'}`} role="status" aria-label="Replay">
    <strong>${replay.identical ? '✓ The replay is identical' : `✗ The replay differs in ${differences.length === 1 ? 'one place' : `${differences.length} places`}`}</strong>
    <span>Replayed from the record, without calling models or tools: ${exact(replay.compared)}.</span>
    ${!replay.identical && html`<span>Lines with − are recorded, lines with + are what the present settings give.</span>`}
    ${replay.stopped.map((it) => html`<span>${exact(it)}</span>`)}
    ${differences.slice(0, MAX_FINDINGS).map((it) => html`<div class="difference"><p>${exact(it.subject)}</p><${Diff} text=${it.lines.join('\n')} label=${it.subject} /></div>`)}
    <button class="small" onClick=${onClose}>Close</button>
  </section>`;
}

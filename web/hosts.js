// Hosts: the processes that run sessions.

import { html } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { ago } from './text.js';
import { Badge, Empty, ErrorNote, PageHead, tone, useLoad } from './ui.js';

export function Hosts() {
  // A server without this list is the only host.
  const { value, error } = useLoad(() => api.get(/** @type {any} */ ('/api/hosts')).catch((problem) => {
    if (problem.status === 404) return { hosts: [] };
    throw problem;
  }), []);
  const hosts = /** @type {any[]} */ (/** @type {any} */ (value)?.hosts ?? []);
  return html`<${PageHead} title="Hosts" /><div class="page"><${ErrorNote} error=${error} />
    ${value && hosts.length < 2 && html`<${Empty} title="This server is the only host"><p class="dim">Servers that share a database appear here. A session that one of them leaves is continued by another.</p><//>`}
    ${hosts.length > 0 && html`<section><table><thead><tr><th>Host</th><th>State</th><th class="number">Sessions</th><th class="number">Seen</th></tr></thead>
      <tbody>${hosts.map((it) => html`<tr key=${it.id ?? it.name}><td>${exact(String(it.name ?? it.id))}</td><td><${Badge} kind=${tone(it.status ?? '')}>${it.status ?? ''}<//></td>
        <td class="number">${it.sessions ?? ''}</td><td class="number">${it.seen_at ? ago(it.seen_at) : ''}</td></tr>`)}</tbody></table></section>`}
  </div>`;
}

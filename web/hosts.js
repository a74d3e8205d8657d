// Hosts: the processes that run sessions.

import { html, useEffect } from './vendor/preact-htm.js';
import { api } from './api.js';
import { exact } from './highlight.js';
import { Badge, Empty, ErrorNote, PageHead, useLoad } from './ui.js';

/** How often the list is read again. */
const INTERVAL = 5000;

export function Hosts() {
  const { value, error, reload } = useLoad(() => api.get('/api/hosts'), []);
  useEffect(() => {
    const timer = setInterval(reload, INTERVAL);
    return () => clearInterval(timer);
  }, []);
  const hosts = value?.hosts ?? [];
  return html`<${PageHead} title="Hosts" /><div class="page"><${ErrorNote} error=${error} />
    ${value && hosts.length === 0 && html`<${Empty} title="No process holds a session"><p class="dim">Servers and commands that share a database appear here while they run sessions. A session that one of them leaves is continued by another.</p><//>`}
    ${hosts.length > 0 && html`<section><table><thead><tr><th>Host</th><th>Process</th><th class="number">Sessions</th></tr></thead>
      <tbody>${hosts.map((it) => html`<tr key=${`${it.name} ${it.process}`}><td>${exact(it.name)} ${it.is_self && html`<${Badge} kind="good">this server<//>`}</td>
        <td><code>${it.process?.split(':')[0] ?? ''}</code></td><td class="number">${it.sessions}</td></tr>`)}</tbody></table></section>`}
  </div>`;
}

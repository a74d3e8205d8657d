// The HTTP API: requests, errors and event streams.

/** An error of the API, with its stable code. */
export class Problem extends Error {
  /** @param {{ status: number, code: string, detail: string, hint?: string }} document */
  constructor(document) {
    super(document.detail);
    this.status = document.status;
    this.code = document.code;
    this.hint = document.hint;
  }
}

/** How far the server's clock is ahead of ours, in milliseconds. */
let clockOffset = 0;

/** The server's time. */
export const serverTime = () => Date.now() + clockOffset;

/**
 * @param {string} method @param {string} path @param {unknown} [body]
 * @param {Record<string, string>} [headers]
 */
async function send(method, path, body, headers = {}) {
  const start = Date.now();
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? headers : { 'Content-Type': 'application/json', ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem({ status: 0, code: 'offline', detail: 'the server does not answer' });
  }
  const date = Date.parse(response.headers.get('date') ?? '');
  // The header has whole seconds.
  if (date) clockOffset = Math.abs(date - start) < 2000 ? 0 : date - start;
  if (response.ok) return response;
  const document = await response.json().catch(() => null);
  if (response.status === 401) dispatchEvent(new CustomEvent('rye:logged-out'));
  const detail = `${method} ${path} failed with status ${response.status}`;
  throw new Problem({ code: 'http', detail, ...document, status: response.status });
}

export const api = {
  /** @param {string} path @returns {Promise<any>} */
  get: async (path) => (await send('GET', path)).json(),
  /** @param {string} path */
  text: async (path) => (await send('GET', path)).text(),
  /** @param {string} path */
  blob: async (path) => (await send('GET', path)).blob(),
  /** @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers] @returns {Promise<any>} */
  post: async (path, body, headers) => {
    const response = await send('POST', path, body, headers);
    return response.status === 204 ? null : response.json();
  },
  /** @param {string} path */
  remove: async (path) => void (await send('DELETE', path)),
};

/** Names of all events: a browser only delivers those that are listened for. */
const EVENTS = (
  'init reset lagged closing deleted problem message_start text_delta thinking_delta ' +
  'tool_call_delta message_update message_end tool_start tool_output tool_end turn_end sealed ' +
  'thread_start queue_state prompt_cancelled prompt_merged compaction_start compaction_end ' +
  'task_start task_end status error decision_gate decision_gate_resolved decision_gate_expired ' +
  'decision_gate_withdrawn model_retry model_switched context_changed usage artifact ' +
  'workspace_snapshot files_changed'
).split(' ');

/** How long to wait before reconnecting, in milliseconds; doubled after each failure. */
const MIN_DELAY = 500;
const MAX_DELAY = 8000;

/**
 * Follows a stream and reconnects, after any time, without a gap or a duplicate.
 * @param {string} path
 * @param {(name: string, data: any) => void} onEvent
 * @param {(connected: boolean) => void} [onConnection]
 * @returns {() => void} ends it
 */
export function follow(path, onEvent, onConnection = () => {}) {
  /** @type {EventSource | undefined} */
  let source;
  let cursor = '';
  let stopped = false;
  let delay = MIN_DELAY;
  /** @type {number | undefined} */
  let timer;
  const connect = () => {
    const join = path.includes('?') ? '&' : '?';
    source = new EventSource(cursor ? `${path}${join}after=${encodeURIComponent(cursor)}` : path);
    source.onopen = () => {
      delay = MIN_DELAY;
      onConnection(true);
    };
    source.onerror = (event) => {
      // A session can have an event with this name.
      if (event instanceof MessageEvent) return;
      onConnection(false);
      source?.close();
      clearTimeout(timer);
      if (!stopped) timer = setTimeout(connect, delay);
      delay = Math.min(delay * 2, MAX_DELAY);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        if (!(event instanceof MessageEvent)) return;
        if (event.lastEventId) cursor = event.lastEventId;
        onEvent(name, JSON.parse(event.data));
      });
    }
  };
  connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source?.close();
  };
}

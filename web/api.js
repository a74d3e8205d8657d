// The HTTP API: requests, errors and event streams.

/** @typedef {import('./openapi.d.ts').paths} Paths */
/** @typedef {'get' | 'post' | 'delete'} Method */
/**
 * An operation of the API.
 * @template {Method} M @template {keyof Paths} P
 * @typedef {NonNullable<Paths[P][M]>} Operation
 */
/**
 * The paths that have a method.
 * @template {Method} M
 * @typedef {{ [P in keyof Paths]: Paths[P][M] extends { responses: unknown } ? P : never }[keyof Paths]} PathOf
 */
/**
 * What a request needs: the parameters of its path, its query and its body.
 * @template {Method} M @template {keyof Paths} P
 * @typedef {(Operation<M, P> extends { parameters: { path: infer X } } ? { params: X } : {}) &
 *   (Operation<M, P> extends { parameters: { query?: infer X } } ? { query?: X } : {}) &
 *   (Operation<M, P> extends { requestBody: { content: { 'application/json': infer X } } } ? { body: X } : {}) &
 *   { headers?: Record<string, string> }} Options
 */
/**
 * The body of a response; a body that the document does not describe is `any`.
 * @template {Method} M @template {keyof Paths} P
 * @typedef {Operation<M, P> extends { responses: infer R } ? { [S in keyof R & (200 | 201 | 202 | 204)]:
 *   R[S] extends { content: { 'application/json': infer B } } ? (Record<string, never> extends B ? any : B) : null
 * }[keyof R & (200 | 201 | 202 | 204)] : never} Answer
 */
/**
 * @template {Method} M @template {keyof Paths} P
 * @typedef {{} extends Options<M, P> ? [options?: Options<M, P>] : [options: Options<M, P>]} Arguments
 */

/** An error of the API, with its stable code. */
export class Problem extends Error {
  /** @param {{ status: number, code: string, detail: string, hint?: string | null }} document */
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
 * Fills in a path.
 * @param {string} path @param {{ params?: object, query?: object }} [options]
 */
function address(path, { params = {}, query = {} } = {}) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(String(/** @type {any} */ (params)[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  }
  return search.size ? `${filled}?${search}` : filled;
}

/** @typedef {{ params?: object, query?: object, body?: unknown, headers?: Record<string, string> }} AnyOptions */

/** @param {string} method @param {string} path @param {AnyOptions} [options] */
async function send(method, path, options = {}) {
  const { body, headers = {} } = options;
  const start = Date.now();
  let response;
  try {
    response = await fetch(address(path, options), {
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

/** @param {Response} response */
const json = async (response) => (response.status === 204 ? null : response.json());

export const api = {
  /**
   * @template {PathOf<'get'>} P
   * @param {P} path @param {Arguments<'get', P>} args @returns {Promise<Answer<'get', P>>}
   */
  get: async (path, ...args) => json(await send('GET', path, /** @type {AnyOptions} */ (args[0]))),
  /**
   * The response as text, for signatures.
   * @template {PathOf<'get'>} P
   * @param {P} path @param {Arguments<'get', P>} args
   */
  text: async (path, ...args) => (await send('GET', path, /** @type {AnyOptions} */ (args[0]))).text(),
  /**
   * @template {PathOf<'get'>} P
   * @param {P} path @param {Arguments<'get', P>} args
   */
  blob: async (path, ...args) => (await send('GET', path, /** @type {AnyOptions} */ (args[0]))).blob(),
  /**
   * @template {PathOf<'post'>} P
   * @param {P} path @param {Arguments<'post', P>} args @returns {Promise<Answer<'post', P>>}
   */
  post: async (path, ...args) => json(await send('POST', path, /** @type {AnyOptions} */ (args[0]))),
  /**
   * @template {PathOf<'delete'>} P
   * @param {P} path @param {Arguments<'delete', P>} args
   */
  remove: async (path, ...args) => void (await send('DELETE', path, /** @type {AnyOptions} */ (args[0]))),
  /**
   * The address of a response, for links and streams.
   * @template {PathOf<'get'>} P
   * @param {P} path @param {Arguments<'get', P>} args
   */
  address: (path, ...args) => address(path, /** @type {AnyOptions} */ (args[0])),
  /** Ends the login of this browser. */
  logOut: async () => void (await send('POST', '/api/logout')),
};

/** Names of all events: a browser only delivers those that are listened for. */
const EVENTS = (
  'init reset lagged closing deleted problem message_start text_delta thinking_delta ' +
  'tool_call_delta message_update message_end tool_start tool_output tool_end turn_end sealed ' +
  'thread_start queue_state compaction_start compaction_end task_start task_end status error ' +
  'decision_gate decision_gate_resolved decision_gate_expired decision_gate_withdrawn ' +
  'model_retry model_switched permission_mode_changed context_changed usage artifact workspace_snapshot files_changed'
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
  /** @type {ReturnType<typeof setTimeout> | undefined} */
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

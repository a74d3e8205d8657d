// A session that follows its events.

import { api, follow } from './api.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Snapshot} Snapshot */
/** @typedef {import('./types.js').RyeEvent} RyeEvent */
/** @typedef {{ tool: string, output: string }} RunningTool */

/** Number of entries that are loaded at once. */
const PAGE = 1000;

/** Number of characters that are shown of the output of a running tool. */
const MAX_OUTPUT = 4000;

/** The model's message in progress, and the tools that run. */
const nothing = () => ({ text: '', thinking: '', call: '', tools: /** @type {Map<string, RunningTool>} */ (new Map()) });

/** A session that follows its events. It changes in place; `onChange` tells. */
export class LiveSession {
  /** @param {string} id @param {() => void} onChange */
  constructor(id, onChange) {
    this.id = id;
    this.onChange = onChange;
    /** @type {Snapshot | null} */
    this.snapshot = null;
    /** @type {Entry[]} */
    this.entries = [];
    /** Positions of the entries. @type {Map<string, number>} */
    this.index = new Map();
    this.live = nothing();
    /** @type {Record<string, string>} */
    this.activity = {};
    this.threadKey = 'default';
    this.connected = true;
    this.loading = true;
    /** Whether entries arrived before older ones were loaded. */
    this.disordered = false;
    /** @type {Error | null} */
    this.error = null;
    this.gatesVersion = 0;
    this.generation = 0;
    this.scheduled = false;
    const path = api.address('/api/sessions/{session}/events', { params: { session: id } });
    this.stop = follow(path, (name, data) => this.receive(name, data), (connected) => {
      this.connected = connected;
      this.changed();
    });
  }

  /** Tells at most once per frame. */
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.onChange();
    });
  }

  get thread() {
    const threads = this.snapshot?.threads ?? [];
    return threads.find((it) => it.key === this.threadKey) ?? threads[0];
  }

  /** @param {string} key */
  choose(key) {
    this.threadKey = key;
    this.load();
  }

  /** Loads the history of the thread. */
  async load() {
    const generation = ++this.generation;
    this.entries = [];
    this.index.clear();
    this.live = nothing();
    this.loading = true;
    this.disordered = false;
    this.changed();
    const thread = this.thread;
    try {
      /** @type {string | undefined} */
      let after;
      while (thread) {
        /** @type {import('./types.js').Schemas['EntryList']} */
        const page = await api.get('/api/sessions/{session}/threads/{thread}/entries', {
          params: { session: this.id, thread: thread.id }, query: { limit: PAGE, after },
        });
        if (generation !== this.generation) return;
        for (const entry of page.entries) this.put(/** @type {Entry} */ (entry));
        this.changed();
        if (!page.next) break;
        after = page.next;
      }
      this.error = null;
    } catch (error) {
      this.error = /** @type {Error} */ (error);
    }
    if (this.disordered) this.order();
    this.loading = false;
    this.changed();
  }

  /** Sorts entries that arrived while older ones were loading. */
  order() {
    this.entries.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    this.index = new Map(this.entries.map((it, i) => [it.id, i]));
  }

  /** Adds an entry once. @param {Entry} entry */
  put(entry) {
    const at = this.index.get(entry.id);
    if (at === undefined) {
      this.index.set(entry.id, this.entries.length);
      this.entries.push(entry);
    } else {
      this.entries[at] = { ...this.entries[at], ...entry };
    }
  }

  async refresh() {
    try {
      this.snapshot = await api.get('/api/sessions/{session}', { params: { session: this.id } });
      this.gatesVersion++;
      this.changed();
    } catch { /* the stream reports errors */ }
  }

  /** @param {string} name @param {any} data */
  receive(name, data) {
    if (name === 'init') {
      this.snapshot = data;
      this.error = null;
      this.gatesVersion++;
      for (const it of data.threads) this.activity[it.id] = it.turn ? 'running' : 'idle';
      this.load();
    } else if (name === 'deleted' || name === 'problem') {
      this.error = new Error(name === 'deleted' ? 'the session was deleted' : data.detail);
    } else if (data.session) {
      this.apply(name, data);
    }
    this.changed();
  }

  /** @param {string} name @param {RyeEvent} event */
  apply(name, event) {
    const detail = event.data ?? {};
    const own = !event.thread || event.thread === this.thread?.id;
    if (own) this.applyToThread(name, event);
    switch (name) {
      case 'status':
        if (event.thread) this.activity[event.thread] = detail.status;
        break;
      case 'turn_end': case 'queue_state': case 'thread_start': case 'usage':
      case 'decision_gate': case 'decision_gate_resolved': case 'decision_gate_expired': case 'decision_gate_withdrawn':
        this.refresh();
        break;
      default:
    }
  }

  /** @param {string} name @param {RyeEvent} event */
  applyToThread(name, event) {
    const detail = event.data ?? {};
    const { live } = this;
    switch (name) {
      case 'message_end':
      case 'message_update':
        if (!detail.content) break;
        this.put({ id: detail.entry, kind: detail.content, created_at: event.at });
        this.disordered ||= this.loading;
        if (name === 'message_end' && detail.content.role === 'assistant') this.live = { ...nothing(), tools: live.tools };
        // A graph opens and closes gates in its record.
        if (detail.content.type === 'run') this.refresh();
        break;
      case 'message_start':
      case 'model_retry':
        this.live = { ...nothing(), tools: live.tools };
        break;
      case 'text_delta': this.live = { ...live, text: live.text + detail.text }; break;
      case 'thinking_delta': this.live = { ...live, thinking: live.thinking + detail.text }; break;
      case 'tool_call_delta': this.live = { ...live, call: detail.tool }; break;
      case 'tool_start':
        live.tools.set(detail.call, { tool: detail.tool, output: '' });
        break;
      case 'tool_output': {
        const running = live.tools.get(detail.call) ?? { tool: '', output: '' };
        live.tools.set(detail.call, { ...running, output: (running.output + detail.text).slice(-MAX_OUTPUT) });
        break;
      }
      case 'tool_end': live.tools.delete(detail.call); break;
      case 'turn_end': this.live = nothing(); break;
      default:
    }
  }
}

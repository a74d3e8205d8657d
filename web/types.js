// Types of the API, for the type checker. They follow docs/reference/protocol.schema.json.

/** @typedef {{ id: string, label: string }} Action */
/**
 * @typedef {object} Gate
 * @property {string} id
 * @property {string} kind
 * @property {string} title
 * @property {string} body
 * @property {Action[]} actions
 * @property {any} status
 * @property {{ session: string, thread: string, prompt: string, call: string, tool: string }} origin
 * @property {number | null} [expires_at]
 * @property {Record<string, any>} [context]
 * @property {number} created_at
 * @property {string} [diff]
 */
/** @typedef {{ gate: Gate, raw: string }} ShownGate a gate with the bytes that the server sent */
/** @typedef {{ fingerprint: string, owner?: string, trusted: boolean, command?: string | null }} BrowserKey */
/**
 * @typedef {object} Usage
 * @property {number} turns
 * @property {number} input_tokens
 * @property {number} [cached_tokens]
 * @property {number} [cache_write_tokens]
 * @property {number} output_tokens
 * @property {number} micro_dollars
 */
/** @typedef {{ item: string, status: string, node?: string, steps?: number, ended_at?: number }} Run */
/**
 * @typedef {object} Session
 * @property {string} id
 * @property {string} [title]
 * @property {string} purpose
 * @property {string} status
 * @property {string | null} [model]
 * @property {string} [role]
 * @property {string} [project]
 * @property {string | null} [workspace]
 * @property {any} [sandbox]
 * @property {any} [parent]
 * @property {any} [forked_from]
 * @property {string | null} [user_id]
 * @property {Usage} usage
 * @property {Run} [run]
 * @property {number} created_at
 * @property {number} updated_at
 */
/** @typedef {{ id: string, key: string, status: string, turn?: any, model?: string | null, tokens?: number, usage: Usage, leaf?: string | null }} Thread */
/** @typedef {{ id: string, thread: string, content: string, status: string, mode: string }} Prompt */
/** @typedef {{ session: Session, cursor: string, threads: Thread[], queue: Prompt[], pending_gates: Gate[] }} Snapshot */
/** @typedef {{ type: string, [key: string]: any }} Part */
/** @typedef {{ id: string, thread?: string | null, prompt?: string | null, kind: any, created_at: number }} Entry */
/** @typedef {{ type: string, session: string, thread: string | null, at: number, sequence?: number, data: any }} RyeEvent */
/** @typedef {{ id: string, kind: string, name: string, scopes: string[], user?: string | null, org?: string | null, project?: string | null, created_at: number, expires_at?: number | null, secret?: string }} Token */

export {};

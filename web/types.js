// Names for types of the API, which openapi.d.ts describes, and for what the pages make of them.

/** @typedef {import('./openapi.d.ts').components['schemas']} Schemas */
/** @typedef {Schemas['Gate'] & { context?: Record<string, any> }} Gate */
/** @typedef {{ gate: Gate, raw: string }} ShownGate a gate with the bytes that the server sent */
/** @typedef {Schemas['Action']} Action */
/** @typedef {Schemas['BrowserKey']} BrowserKey */
/** @typedef {Schemas['Usage']} Usage */
/** @typedef {Schemas['Session']} Session */
/** @typedef {Schemas['Thread']} Thread */
/** @typedef {Schemas['QueuedPrompt']} Prompt */
/** @typedef {Schemas['SessionState']} Snapshot */
/** @typedef {Schemas['Part']} Part */
/** @typedef {Schemas['Message'] & { type: 'message' }} Message */
/** @typedef {Message | Extract<Schemas['EntryKind'], { type: string }>} EntryKind */
/** @typedef {Pick<Schemas['Entry'], 'id' | 'created_at'> & { kind: EntryKind }} Entry */
/** @typedef {Schemas['RunStart'] & { type: 'started' }} RunStart */
/** @typedef {RunStart | Extract<Schemas['RunEvent'], { type: string }>} RunEvent */
/** @typedef {Schemas['TokenView']} Token */
/** @typedef {{ type: string, session: string, thread: string | null, at: number, sequence?: number, data: any }} RyeEvent an event of a stream */

export {};

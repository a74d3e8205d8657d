// Words and numbers for people.

/** @param {number} at milliseconds since 1970 */
export function ago(at) {
  const seconds = Math.max(0, (Date.now() - at) / 1000);
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** @param {number} at */
export const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });

/** @param {number} at */
export const dateTime = (at) => new Date(at).toLocaleString([], { hour12: false });

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

/** The short form of an id, as on the command line. @param {string} id */
export const shortId = (id) => (id.length > 8 ? id.slice(-8) : id);

/** @param {number | undefined} micro millionths of a dollar */
export function cost(micro) {
  if (!micro) return '–';
  return micro < 10000 ? `$${(micro / 1e6).toFixed(4)}` : `$${(micro / 1e6).toFixed(2)}`;
}

/** @param {number} count */
export function count(count) {
  if (count < 1000) return String(count);
  return count < 1e6 ? `${(count / 1000).toFixed(1)}k` : `${(count / 1e6).toFixed(1)}M`;
}

/** @param {import('./types.js').Usage | undefined} usage */
export const tokens = (usage) => (usage ? usage.input_tokens + usage.output_tokens : 0);

/** @param {number} size */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  return size < 1 << 20 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / (1 << 20)).toFixed(1)} MiB`;
}

/** @param {string} name in snake_case */
export const words = (name) => name.replaceAll('_', ' ');

/** A title for a session. @param {import('./types.js').Session} session */
export const titleOf = (session) => session.title || session.run?.item || `Session ${shortId(session.id)}`;

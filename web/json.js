// Exact JSON: reads values as the server wrote them, and writes them as the server hashes them.
//
// Signatures cover bytes. JSON.parse loses some of them (`1.0` becomes 1), so what is signed is cut
// out of the text of the response.

/**
 * Index of the first character after the value that starts at `at`.
 * @param {string} text @param {number} at
 */
function skipValue(text, at) {
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
      if (depth === 0) return i + 1;
    } else if (c === '{' || c === '[') {
      depth++;
    } else if (c === '}' || c === ']') {
      if (depth === 0) return i;
      if (--depth === 0) return i + 1;
    } else if (depth === 0 && c === ',') {
      return i;
    }
  }
  return text.length;
}

/**
 * The members of an object, as text.
 * @param {string} text compact JSON of an object
 * @returns {Map<string, string>}
 */
export function members(text) {
  const found = new Map();
  let at = 1;
  while (at < text.length && text[at] !== '}') {
    if (text[at] === ',') at++;
    const keyEnd = skipValue(text, at);
    const end = skipValue(text, keyEnd + 1);
    found.set(JSON.parse(text.slice(at, keyEnd)), text.slice(keyEnd + 1, end));
    at = end;
  }
  return found;
}

/**
 * The elements of an array, as text.
 * @param {string} text compact JSON of an array
 */
export function elements(text) {
  const found = [];
  let at = 1;
  while (at < text.length && text[at] !== ']') {
    if (text[at] === ',') at++;
    const end = skipValue(text, at);
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}

/**
 * Why a value that a person wrote cannot be hashed here exactly as on the server.
 * @param {unknown} value @returns {string | null}
 */
export function inexact(value) {
  if (typeof value === 'number') {
    const size = Math.abs(value);
    const exact = Number.isInteger(value)
      ? Number.isSafeInteger(value) && !Object.is(value, -0)
      : size >= 1e-4 && size < 1e15;
    return exact ? null : `the number ${value} can only be edited in a terminal`;
  }
  if (value === null || typeof value !== 'object') return null;
  for (const [key, inner] of Object.entries(value)) {
    // JavaScript moves such keys to the front.
    if (!Array.isArray(value) && /^\d+$/.test(key)) {
      return `the key ${key} can only be edited in a terminal`;
    }
    const reason = inexact(inner);
    if (reason) return reason;
  }
  return null;
}

/**
 * Compares by code points.
 * @param {string} a @param {string} b
 */
function byCodePoints(a, b) {
  const [x, y] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    const difference = (x[i].codePointAt(0) ?? 0) - (y[i].codePointAt(0) ?? 0);
    if (difference) return difference;
  }
  return x.length - y.length;
}

/**
 * Canonical JSON, as in docs/canonical-json.md.
 * @param {unknown} value without numbers that are `inexact`
 * @returns {string}
 */
export function canonical(value) {
  if (typeof value === 'string') {
    return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) =>
      '\\u' + unit.charCodeAt(0).toString(16).padStart(4, '0'));
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value).sort(([a], [b]) => byCodePoints(a, b));
    return `{${entries.map(([key, it]) => `${canonical(key)}:${canonical(it)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

const encoder = new TextEncoder();

/**
 * SHA-256 in hex.
 * @param {string} text
 */
export async function sha256(text) {
  const digest = await crypto.subtle.digest('SHA-256', encoder.encode(text));
  return hex(new Uint8Array(digest));
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

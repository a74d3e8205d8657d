// Shows text exactly: syntax colours, differences, and characters that would be invisible.

import { html, useState } from './vendor/preact-htm.js';
import { bytes } from './text.js';

/**
 * Control characters, and those that reorder or hide text. A joiner within an emoji hides nothing.
 */
const HIDDEN = new RegExp('[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5' +
  '\\u180b-\\u180f\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0d\\ufeff\\uffa0' +
  '\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]|(?<!\\p{Extended_Pictographic}[\\ufe0f\\u{1f3fb}-\\u{1f3ff}]?)\\u200d', 'u');
const HIDDEN_ALL = new RegExp(HIDDEN.source, 'gu');

/** Maximum number of hidden characters that are named; more are shown as a placeholder. */
const MAX_NAMED = 500;

/** The text, with hidden characters as their code points. @param {string} text */
export function exact(text) {
  if (!HIDDEN.test(text)) return text;
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN_ALL)) {
    if (parts.length > 2 * MAX_NAMED) break;
    if (match.index > at) parts.push(text.slice(at, match.index));
    const code = (match[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
    parts.push(html`<span class="hidden-char" title="hidden character">U+${code}</span>`);
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at).replace(HIDDEN_ALL, '\ufffd'));
  return parts;
}

const STRING = `"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?`;
/** @type {Record<string, RegExp>} */
const LANGUAGES = {
  shell: new RegExp(`(?<comment>(?<=^|\\s)#[^\\n]*)|(?<string>${STRING})|(?<variable>\\$\\{[^}]*\\}|\\$\\w+)|(?<operator>&&|\\|\\|?|;|>>?|<)|(?<number>(?<=\\s)--?[\\w-]+)`, 'gm'),
  json: /(?<name>"(?:[^"\\]|\\.)*"(?=\s*:))|(?<string>"(?:[^"\\]|\\.)*")|(?<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?<keyword>true|false|null)/g,
  code: new RegExp(`(?<comment>//[^\\n]*|/\\*[\\s\\S]*?\\*/|(?<=^|\\s)#[^\\n!][^\\n]*)|(?<string>"""[\\s\\S]*?"""|'''[\\s\\S]*?'''|${STRING}|\`[^\`]*\`)|(?<keyword>\\b(?:and|as|async|await|break|case|class|const|continue|def|else|enum|export|false|False|fn|for|from|func|function|if|impl|import|in|let|match|mod|None|not|null|or|pass|pub|raise|return|self|static|struct|switch|this|throw|true|True|try|type|use|var|while|with|yield)\\b)|(?<number>\\b\\d[\\w.]*)`, 'gm'),
  yaml: /(?<comment>(?<=^|\s)#[^\n]*)|(?<name>^[ \t-]*[\w./-]+(?=:))|(?<string>"(?:[^"\\]|\\.)*"|'[^'\n]*')|(?<number>\b\d+(?:\.\d+)?\b)|(?<keyword>\b(?:true|false|null)\b)/gm,
};

/** Longer text is shown without colours. */
const MAX_COLOURED = 50_000;

/** Longer text is cut until the person asks for all of it. */
const MAX_SHOWN = 50_000;

/** @param {string} name of a language or file */
export function languageOf(name) {
  const last = name.toLowerCase().split(/[./]/).pop() ?? '';
  if (['sh', 'bash', 'shell', 'zsh', 'console'].includes(last)) return 'shell';
  if (['json', 'jsonl'].includes(last)) return 'json';
  if (['yaml', 'yml', 'toml', 'ini', 'env'].includes(last)) return 'yaml';
  return ['', 'text', 'txt', 'md', 'markdown', 'plain', 'log'].includes(last) ? '' : 'code';
}

/** @param {string} text @param {string} language */
function coloured(text, language) {
  const pattern = LANGUAGES[language];
  if (!pattern || text.length > MAX_COLOURED) return exact(text);
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) parts.push(exact(text.slice(at, match.index)));
    const kind = Object.entries(match.groups ?? {}).find(([, it]) => it !== undefined)?.[0];
    parts.push(html`<span class=${`hl-${kind}`}>${exact(match[0])}</span>`);
    at = match.index + match[0].length;
  }
  parts.push(exact(text.slice(at)));
  return parts;
}

/**
 * The start of a text, and a button that shows all of it if it is long.
 * @param {string} text @returns {[string, any]}
 */
function useStart(text) {
  const [all, setAll] = useState(false);
  if (all || text.length <= MAX_SHOWN) return [text, null];
  const button = html`<button class="small" onClick=${() => setAll(true)}>Show all ${bytes(text.length)}</button>`;
  return [text.slice(0, MAX_SHOWN), button];
}

/** @param {{ text: string, language?: string, label?: string }} props */
export function Code({ text, language = '', label = 'code' }) {
  const [shown, more] = useStart(text);
  return html`<pre class="code" tabindex="0" role="group" aria-label=${label}><code>${coloured(shown, language)}</code></pre>${more}`;
}

/** @param {{ value: unknown, label?: string }} props */
export function Json({ value, label = 'JSON' }) {
  return html`<${Code} text=${JSON.stringify(value, null, 2) ?? ''} language="json" label=${label} />`;
}

/** A unified diff. @param {{ text: string, label?: string }} props */
export function Diff({ text, label = 'changes' }) {
  const [shown, more] = useStart(text);
  const lines = shown.replace(/\n$/, '').split('\n');
  return html`<pre class="code diff" tabindex="0" role="group" aria-label=${label}><code>${lines.map((line, i) => {
    const kind = line.startsWith('+++') || line.startsWith('---') ? 'file'
      : line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed'
      : line.startsWith('@@') || line.startsWith('diff ') ? 'hunk' : '';
    return html`<span key=${i} class=${`line ${kind}`}>${exact(line)}${'\n'}</span>`;
  })}</code></pre>${more}`;
}

/** Whether a text looks like a unified diff. @param {string} text */
export const isDiff = (text) => /^(---|diff --git) .*\n(?:.*\n)?\+\+\+ |^@@ /m.test(text.slice(0, MAX_SHOWN));

/** A replacement as a diff: all old lines, then all new ones. @param {string} before @param {string} after */
export const replacement = (before, after) => {
  /** @param {string} sign @param {string} text */
  const lines = (sign, text) => (text ? text.replace(/\n$/, '').split('\n').map((line) => `${sign}${line}`) : []);
  return [...lines('-', before), ...lines('+', after)].join('\n');
};

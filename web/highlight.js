// Shows text exactly: syntax colours, differences, and characters that would be invisible.

import { html } from './vendor/preact-htm.js';

/** Control characters, and those that reorder or hide text. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff]/;
const HIDDEN_ALL = new RegExp(HIDDEN.source, 'g');

/** The text, with hidden characters as their code points. @param {string} text */
export function exact(text) {
  if (!HIDDEN.test(text)) return text;
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN_ALL)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    const code = match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
    parts.push(html`<span class="hidden-char" title="hidden character">U+${code}</span>`);
    at = match.index + 1;
  }
  parts.push(text.slice(at));
  return parts;
}

const STRING = `"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?`;
/** @type {Record<string, RegExp>} */
const LANGUAGES = {
  shell: new RegExp(`(?<comment>(?<=^|\\s)#[^\\n]*)|(?<string>${STRING})|(?<variable>\\$\\{[^}]*\\}|\\$\\w+)|(?<operator>&&|\\|\\|?|;|>>?|<)|(?<number>(?<=\\s)--?[\\w-]+)`, 'gm'),
  json: /(?<name>"(?:[^"\\]|\\.)*"(?=\s*:))|(?<string>"(?:[^"\\]|\\.)*")|(?<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?<keyword>true|false|null)/g,
  code: new RegExp(`(?<comment>//[^\\n]*|/\\*[\\s\\S]*?\\*/|(?<=^|\\s)#[^\\n!][^\\n]*)|(?<string>${STRING}|\`[^\`]*\`)|(?<keyword>\\b(?:and|as|async|await|break|case|class|const|continue|def|else|enum|export|false|False|fn|for|from|func|function|if|impl|import|in|let|match|mod|None|not|null|or|pass|pub|raise|return|self|static|struct|switch|this|throw|true|True|try|type|use|var|while|with|yield)\\b)|(?<number>\\b\\d[\\w.]*)`, 'gm'),
  yaml: /(?<comment>(?<=^|\s)#[^\n]*)|(?<name>^[ \t-]*[\w./-]+(?=:))|(?<string>"(?:[^"\\]|\\.)*"|'[^'\n]*')|(?<number>\b\d+(?:\.\d+)?\b)|(?<keyword>\b(?:true|false|null)\b)/gm,
};

/** Longer text is shown without colours. */
const MAX_COLOURED = 50_000;

/** @param {string} name of a language or file */
export function languageOf(name) {
  const last = name.toLowerCase().split(/[./]/).pop() ?? '';
  if (['sh', 'bash', 'shell', 'zsh', 'console'].includes(last)) return 'shell';
  if (['json', 'jsonl'].includes(last)) return 'json';
  if (['yaml', 'yml', 'toml'].includes(last)) return 'yaml';
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

/** @param {{ text: string, language?: string, label?: string }} props */
export function Code({ text, language = '', label = 'code' }) {
  return html`<pre class="code" tabindex="0" role="group" aria-label=${label}><code>${coloured(text, language)}</code></pre>`;
}

/** @param {{ value: unknown, label?: string }} props */
export function Json({ value, label = 'JSON' }) {
  return html`<${Code} text=${JSON.stringify(value, null, 2)} language="json" label=${label} />`;
}

/** A unified diff. @param {{ text: string, label?: string }} props */
export function Diff({ text, label = 'changes' }) {
  const lines = text.replace(/\n$/, '').split('\n');
  return html`<pre class="code diff" tabindex="0" role="group" aria-label=${label}><code>${lines.map((line, i) => {
    const kind = line.startsWith('+++') || line.startsWith('---') ? 'file'
      : line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed'
      : line.startsWith('@@') || line.startsWith('diff ') ? 'hunk' : '';
    return html`<span key=${i} class=${`line ${kind}`}>${exact(line)}${'\n'}</span>`;
  })}</code></pre>`;
}

/** Whether a text looks like a unified diff. @param {string} text */
export const isDiff = (text) => /^(---|diff --git) .*\n(?:.*\n)?\+\+\+ |^@@ /m.test(text);

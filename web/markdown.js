// Markdown as elements, never as HTML text.

import { html } from './vendor/preact-htm.js';
import { Code, exact, languageOf } from './highlight.js';

const INLINE = /(?<code>`+)(?<codeText>.+?)\k<code>|\*\*(?<bold>\S(?:.*?\S)?)\*\*|(?<![\w*])[*_](?<em>\S(?:[^*_]*?\S)?)[*_](?![\w*])|~~(?<del>.+?)~~|\[(?<label>[^\]\n]+)\]\((?<url>[^)\s]+)\)|(?<bare>https?:\/\/[^\s<>()]+[^\s<>().,;:!?])/g;

/** Links may lead to web pages only. @param {string} url */
const isSafe = (url) => /^(https?:\/\/|mailto:)/i.test(url);

/** A longer paragraph is shown as it is. */
const MAX_FORMATTED = 5000;

/** @param {string} text @returns {any[]} */
function inline(text) {
  if (text.length > MAX_FORMATTED) return [exact(text)];
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) parts.push(exact(text.slice(at, match.index)));
    const it = match.groups ?? {};
    const url = it.url ?? it.bare;
    if (it.codeText !== undefined) parts.push(html`<code>${exact(it.codeText)}</code>`);
    else if (it.bold !== undefined) parts.push(html`<strong>${inline(it.bold)}</strong>`);
    else if (it.em !== undefined) parts.push(html`<em>${inline(it.em)}</em>`);
    else if (it.del !== undefined) parts.push(html`<del>${inline(it.del)}</del>`);
    else if (isSafe(url)) {
      parts.push(html`<a href=${url} rel="noreferrer noopener" target="_blank">${exact(it.label ?? url)}</a>`);
    } else parts.push(exact(match[0]));
    at = match.index + match[0].length;
  }
  parts.push(exact(text.slice(at)));
  return parts;
}

/** @param {string} line */
const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());

const FENCE = /^\s*(```+|~~~+)\s*([\w./+-]*)/;
const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;
const BLOCK = /^(\s*(```|~~~)|#{1,6}\s|\s*([-*+]|\d+[.)])\s|>|\s*([-*_]\s*){3,}$)/;

/** Maximum depth of lists and quotes. */
const MAX_DEPTH = 12;

/** @param {string[]} lines @param {number} depth @returns {any[]} */
function blocks(lines, depth) {
  const out = [];
  if (depth > MAX_DEPTH) return [html`<p>${exact(lines.join('\n'))}</p>`];
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    const item = ITEM.exec(line);
    if (!line.trim()) {
      i++;
    } else if (fence) {
      let end = i + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
      out.push(html`<${Code} text=${lines.slice(i + 1, end).join('\n')} language=${languageOf(fence[2])} />`);
      i = end + 1;
    } else if (heading) {
      out.push(html`<p class=${`heading h${heading[1].length}`}>${inline(heading[2])}</p>`);
      i++;
    } else if (/^\s*([-*_]\s*){3,}$/.test(line)) {
      out.push(html`<hr />`);
      i++;
    } else if (line.startsWith('>')) {
      const start = i;
      while (i < lines.length && lines[i].startsWith('>')) i++;
      out.push(html`<blockquote>${blocks(lines.slice(start, i).map((it) => it.replace(/^> ?/, '')), depth + 1)}</blockquote>`);
    } else if (item) {
      const ordered = /\d/.test(item[2]);
      /** @type {string[][]} */
      const items = [];
      const indent = item[1].length;
      while (i < lines.length) {
        const next = ITEM.exec(lines[i]);
        if (next && next[1].length <= indent) items.push([next[3]]);
        else if (lines[i].trim() && /^\s/.test(lines[i])) items[items.length - 1].push(lines[i].slice(Math.min(indent + 2, lines[i].search(/\S/))));
        else break;
        i++;
      }
      const rows = items.map((it) => html`<li>${it.length > 1 ? [inline(it[0]), blocks(it.slice(1), depth + 1)] : inline(it[0])}</li>`);
      out.push(ordered ? html`<ol>${rows}</ol>` : html`<ul>${rows}</ul>`);
    } else if (line.includes('|') && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[i + 1] ?? '')) {
      const head = cells(line);
      const start = (i += 2);
      while (i < lines.length && lines[i].includes('|')) i++;
      out.push(html`<div class="table-scroll" tabindex="0" role="region" aria-label="table"><table>
        <thead><tr>${head.map((it) => html`<th>${inline(it)}</th>`)}</tr></thead>
        <tbody>${lines.slice(start, i).map((row) => html`<tr>${cells(row).map((it) => html`<td>${inline(it)}</td>`)}</tr>`)}</tbody>
      </table></div>`);
    } else {
      const start = i++;
      while (i < lines.length && lines[i].trim() && !BLOCK.test(lines[i])) i++;
      out.push(html`<p>${inline(lines.slice(start, i).join('\n'))}</p>`);
    }
  }
  return out;
}

/** A longer text is shown as it is. */
const MAX_TEXT = 100_000;

/** @param {{ text: string }} props */
export function Markdown({ text }) {
  if (text.length > MAX_TEXT) return html`<${Code} text=${text} label="text" />`;
  return html`<div class="markdown">${blocks(text.split('\n'), 0)}</div>`;
}

// Graph runs: drawn as graphs, coloured while they run.

import { html, useEffect, useState } from './vendor/preact-htm.js';
import { api } from './api.js';
import { Json, exact } from './highlight.js';
import { loadGates } from './inbox.js';
import { LiveSession } from './live.js';
import { ago, duration, shortId, words } from './text.js';
import { Badge, Empty, ErrorNote, PageHead, tone, useKeys, useLoad } from './ui.js';

/** @typedef {{ name: string, next: string[], type: string }} GraphNode */
/** @typedef {Extract<import('./types.js').RunEvent, { type: 'step' }>} Step */
/** @typedef {{ status: string, inputs: Map<number, unknown>, items: any[], steps: Step[] }} NodeState */

/** Keys of a node whose values name other nodes. */
const EDGE = /(?:^|[\s{,-])(?:next|to|on_error|default|then|else|body|after|on_timeout|approve|deny):\s*["']?([\w.-]+)/g;

/**
 * Nodes and edges in the text of a graph. It looks for what is drawn only; the server validates.
 * @param {string} text @returns {GraphNode[]}
 */
export function readGraph(text) {
  const lines = text.split('\n');
  const at = lines.findIndex((line) => /^\s*nodes:\s*$/.test(line));
  if (at < 0) return [];
  const outer = lines[at].search(/\S/);
  /** @type {{ name: string, text: string }[]} */
  const blocks = [];
  let indent = -1;
  for (const line of lines.slice(at + 1)) {
    const depth = line.search(/\S/);
    if (depth < 0 || line.trim().startsWith('#')) continue;
    if (depth <= outer) break;
    if (indent < 0) indent = depth;
    const key = depth === indent ? /^["']?([\w.-]+)["']?:(.*)$/.exec(line.trim()) : null;
    if (key) blocks.push({ name: key[1], text: `${key[2]}\n` });
    else if (blocks.length) blocks[blocks.length - 1].text += `${line}\n`;
  }
  const names = new Set(blocks.map((it) => it.name));
  return blocks.map(({ name, text: body }) => ({
    name,
    type: /type:\s*["']?(\w+)/.exec(body)?.[1] ?? 'action',
    next: [...new Set([...body.matchAll(EDGE)].map((it) => it[1]).filter((it) => names.has(it)))],
  }));
}

/**
 * What a run recorded, by node.
 * @param {import('./types.js').RunEvent[]} events
 */
export function runState(events) {
  /** @type {Map<string, NodeState>} */
  const nodes = new Map();
  /** @type {Set<string>} */
  const taken = new Set();
  /** @type {import('./types.js').RunStart | null} */
  let start = null;
  /** @type {Extract<import('./types.js').RunEvent, { type: 'end' }> | null} */
  let end = null;
  let current = '';
  const node = (/** @type {string} */ name) => {
    /** @type {NodeState} */
    const known = nodes.get(name) ?? { status: '', inputs: new Map(), items: [], steps: [] };
    nodes.set(name, known);
    return known;
  };
  for (const it of events) {
    switch (it.type) {
      case 'started': start = it; break;
      case 'resumed': end = null; break;
      case 'begin':
        current = it.node;
        node(current).status = 'running';
        node(current).inputs.set(it.step, it.input);
        break;
      case 'item_end': if (current) node(current).items.push(it); break;
      case 'gate': if (current) node(current).status = 'waiting'; break;
      case 'gate_closed': if (current) node(current).status = 'running'; break;
      case 'step': {
        const state = node(it.node);
        state.status = it.outcome === 'done' || it.outcome === 'cached' ? 'completed' : it.outcome;
        state.steps.push(it);
        if (it.next) taken.add(`${it.node}→${it.next}`);
        break;
      }
      case 'end': end = it; break;
      default:
    }
  }
  // A run that stopped has no running nodes.
  if (end) for (const state of nodes.values()) if (['running', 'waiting'].includes(state.status)) state.status = 'interrupted';
  return { nodes, taken, start, end };
}

const WIDTH = 156;
const HEIGHT = 38;
const GAP_X = 28;
const GAP_Y = 46;

/**
 * Places the nodes in layers by their distance from the start.
 * @param {GraphNode[]} graph @param {string} start
 */
function layout(graph, start) {
  const byName = new Map(graph.map((it) => [it.name, it]));
  /** @type {Map<string, number>} */
  const layers = new Map();
  let layer = [start].filter((it) => byName.has(it));
  for (let depth = 0; layer.length; depth++) {
    for (const name of layer) layers.set(name, depth);
    layer = [...new Set(layer.flatMap((name) => byName.get(name)?.next ?? []))].filter((name) => !layers.has(name));
  }
  const deepest = Math.max(0, ...layers.values());
  for (const { name } of graph) if (!layers.has(name)) layers.set(name, deepest + 1);
  /** @type {string[][]} */
  const rows = [];
  for (const { name } of graph) (rows[layers.get(name) ?? 0] ??= []).push(name);
  const widest = Math.max(1, ...rows.map((row) => row?.length ?? 0));
  const width = widest * (WIDTH + GAP_X) + GAP_X;
  /** @type {Map<string, { x: number, y: number }>} */
  const places = new Map();
  rows.forEach((row, y) => row.forEach((name, x) => places.set(name, {
    x: width / 2 + (x - (row.length - 1) / 2) * (WIDTH + GAP_X),
    y: GAP_Y / 2 + y * (HEIGHT + GAP_Y) + HEIGHT / 2,
  })));
  return { places, width, height: rows.length * (HEIGHT + GAP_Y) };
}

/** @param {{ graph: GraphNode[], start: string, state: ReturnType<typeof runState>, chosen: string, onChoose: (name: string) => void }} props */
function Drawing({ graph, start, state, chosen, onChoose }) {
  const { places, width, height } = layout(graph, start);
  const edges = graph.flatMap((from) => from.next.map((to) => ({ from: from.name, to })));
  return html`<div class="graph"><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="group" aria-label="Graph">
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"></path></marker></defs>
    ${edges.map(({ from, to }) => {
      const a = places.get(from);
      const b = places.get(to);
      if (!a || !b) return null;
      const down = b.y > a.y;
      const d = down
        ? `M${a.x} ${a.y + HEIGHT / 2} C${a.x} ${a.y + HEIGHT / 2 + 24} ${b.x} ${b.y - HEIGHT / 2 - 24} ${b.x} ${b.y - HEIGHT / 2 - 2}`
        : `M${a.x + WIDTH / 2} ${a.y} C${a.x + WIDTH / 2 + 40} ${a.y} ${b.x + WIDTH / 2 + 40} ${b.y} ${b.x + WIDTH / 2 + 2} ${b.y}`;
      return html`<path key=${`${from}→${to}`} class=${state.taken.has(`${from}→${to}`) ? 'taken' : ''} d=${d} marker-end="url(#arrow)"></path>`;
    })}
    ${graph.map(({ name }) => {
      const at = places.get(name);
      if (!at) return null;
      const status = state.nodes.get(name)?.status ?? '';
      return html`<g key=${name} class=${`node ${tone(status)} ${name === chosen ? 'chosen' : ''}`} tabindex="0" role="button"
          aria-label=${`${name}, ${status ? words(status) : 'not run'}`} aria-pressed=${name === chosen ? 'true' : 'false'} onClick=${() => onChoose(name)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); onChoose(name); } }}>
        <rect x=${at.x - WIDTH / 2} y=${at.y - HEIGHT / 2} width=${WIDTH} height=${HEIGHT} rx="7"></rect>
        <text x=${at.x} y=${at.y}>${name.length > 20 ? `${name.slice(0, 19)}…` : name}</text></g>`;
    })}
  </svg></div>`;
}

/** @param {{ id: string }} props */
export function Runs({ id }) {
  const { value, error, reload } = useLoad(() => api.get('/api/sessions', { query: { purpose: 'workflow', limit: 100 } }), []);
  useEffect(() => {
    const timer = setInterval(reload, 5000);
    return () => clearInterval(timer);
  }, []);
  const sessions = value?.sessions ?? [];
  const at = sessions.findIndex((it) => it.id === id);
  const open = (/** @type {number} */ index) => { if (sessions[index]) location.hash = `#/runs/${encodeURIComponent(sessions[index].id)}`; };
  useKeys({ j: () => open(at + 1), k: () => open(Math.max(0, at - 1)) });
  return html`<div class=${`split ${id ? 'has-detail' : ''}`}>
    <div class="pane list-pane"><${PageHead} title="Graph runs" /><${ErrorNote} error=${error} />
      ${value && !sessions.length && html`<${Empty} title="No graph has run yet"><p class="dim">Start one from <a href="#/items">its item</a>.</p><//>`}
      <ul class="rows" aria-label="Runs">${sessions.map((it) => html`<li key=${it.id} class=${`row ${it.id === id ? 'current' : ''}`}>
        <a href=${`#/runs/${encodeURIComponent(it.id)}`} aria-current=${it.id === id ? 'true' : undefined}>
          <span class="row-title">${exact(it.run?.item ?? shortId(it.id))}</span>
          <span class="row-meta"><${Badge} kind=${tone(it.run?.status ?? '')}>${words(it.run?.status ?? '')}<//><span>${it.run?.steps ?? 0} steps</span>
            ${it.run?.node && html`<span>${exact(it.run.node)}</span>`}<span class="end">${ago(it.created_at)}</span></span></a></li>`)}</ul>
    </div>
    <div class="pane detail-pane">${id ? html`<a class="back" href="#/runs">‹ Runs</a><${RunView} key=${id} id=${id} />` : html`<${Empty} title="Choose a run" />`}</div>
  </div>`;
}

/** @param {{ id: string }} props */
function RunView({ id }) {
  const [live, setLive] = useState(/** @type {{ session: LiveSession } | null} */ (null));
  const [chosen, setChosen] = useState('');
  useEffect(() => {
    const session = new LiveSession(id, () => setLive({ session }));
    return () => session.stop();
  }, [id]);
  const session = live?.session;
  const [gate, setGate] = useState('');
  const steps = session?.entries.length ?? 0;
  useEffect(() => {
    let current = true;
    loadGates({ session: id }).then((all) => current && setGate(all[0]?.gate.id ?? ''), () => {});
    return () => { current = false; };
  }, [id, steps, session?.gatesVersion]);
  if (!session?.snapshot) return html`<${ErrorNote} error=${session?.error ?? null} />`;
  const state = runState(session.entries.flatMap((it) => (it.kind.type === 'run' ? /** @type {import('./types.js').RunEvent[]} */ (it.kind.events) : [])));
  const run = session.snapshot.session.run;
  const graph = state.start ? readGraph(state.start.text) : [];
  const node = state.nodes.get(chosen);
  const status = state.end?.status ?? (gate ? 'waiting' : run?.status ?? '');
  return html`<div class="page"><${PageHead} title=${exact(run?.item ?? 'Run')}><${Badge} kind=${tone(status)}>${words(status)}<//>
      <a class="button small" href=${`#/session/${encodeURIComponent(id)}/timeline`}>Timeline</a><a class="button small" href=${`#/session/${encodeURIComponent(id)}`}>Record</a><//>
    <section>${graph.length ? html`<${Drawing} graph=${graph} start=${state.start?.start ?? ''} state=${state} chosen=${chosen} onChoose=${setChosen} />`
      : !session.loading && html`<p class="dim">The record of this run has no graph.</p>`}</section>
    ${gate && html`<section><p class="note"><span>This run waits for <a href=${`#/inbox/${encodeURIComponent(gate)}`}>a decision</a>.</span></p></section>`}
    ${chosen && html`<${NodeDetails} name=${chosen} node=${node} />`}
    ${state.nodes.size > 0 && html`<section><h2>Steps</h2><${Steps} state=${state} onChoose=${setChosen} /></section>`}
    ${state.start && html`<section><h2>Input</h2><${Json} value=${state.start.inputs} label="input" /></section>`}
    ${state.end && html`<section><h2>${state.end.error ? 'Error' : 'Output'}</h2><${Json} value=${state.end.error ?? state.end.output ?? null} label="output" /></section>`}
  </div>`;
}

/** @param {{ name: string, node: NodeState | undefined }} props */
function NodeDetails({ name, node }) {
  const steps = node?.steps ?? [];
  const isRunning = !!node && ['running', 'waiting'].includes(node.status);
  const last = Math.max(0, ...(node?.inputs.keys() ?? []));
  return html`<section class="node-details" aria-label=${`Node ${name}`}><h2>${exact(name)}</h2>
    ${!node && html`<p class="dim">Not run.</p>`}
    ${steps.map((step) => html`<div key=${step.step} class="step">
      <p>Step ${step.step}: <${Badge} kind=${outcomeTone(step.outcome)}>${step.outcome}<//> in ${duration(step.duration_us / 1000)}${step.next ? html`, then ${exact(step.next)}` : ''}</p>
      <${NodeInput} input=${node?.inputs.get(step.step)} />
      ${step.error ? html`<h3>Error</h3><${Json} value=${step.error} label="node error" />`
        : html`<h3>Output</h3>${step.is_result_omitted ? html`<p class="dim">Too long to record.</p>` : html`<${Json} value=${step.output ?? step.result ?? null} label="node output" />`}`}
      ${Object.keys(step.set ?? {}).length > 0 && html`<h3>State that it set</h3><${Json} value=${step.set} label="state" />`}</div>`)}
    ${isRunning && html`<div class="step"><p>Step ${last}: <${Badge} kind=${tone(node.status)}>${words(node.status)}<//></p><${NodeInput} input=${node.inputs.get(last)} /></div>`}
    ${(node?.items.length ?? 0) > 0 && html`<h3>Items</h3><${Json} value=${node?.items.map(({ index, result, error, cached }) => ({ index, ...(error ? { error } : { result }), ...(cached ? { cached } : {}) }))} label="items" />`}
  </section>`;
}

/** @param {{ input: unknown }} props */
const NodeInput = ({ input }) => (input === undefined || input === null ? null : html`<h3>Input</h3><${Json} value=${input} label="node input" />`);

/** @param {string} outcome */
const outcomeTone = (outcome) => tone(outcome === 'done' || outcome === 'cached' ? 'completed' : outcome);

/** The steps in order, with their share of the time. @param {{ state: ReturnType<typeof runState>, onChoose: (name: string) => void }} props */
function Steps({ state, onChoose }) {
  const steps = [...state.nodes.values()].flatMap((it) => it.steps).sort((a, b) => a.step - b.step);
  const longest = Math.max(1, ...steps.map((it) => it.duration_us));
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label="steps"><table class="bars"><thead><tr><th>Node</th><th>Outcome</th><th class="share"><span class="visually-hidden">Share of the time</span></th><th class="number">Time</th></tr></thead>
    <tbody>${steps.map((it) => html`<tr key=${it.step}><th scope="row"><button class="link" onClick=${() => onChoose(it.node)}>${it.step}. ${exact(it.node)}</button></th>
      <td><${Badge} kind=${outcomeTone(it.outcome)}>${it.outcome}<//></td>
      <td class="share"><span class="bar" style=${{ width: `${(it.duration_us / longest) * 100}%` }}></span></td><td class="number">${duration(it.duration_us / 1000)}</td></tr>`)}</tbody></table></div>`;
}

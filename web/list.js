// A list that only renders what is visible, whatever its length, with rows of any height.

import { html, useEffect, useLayoutEffect, useReducer, useRef } from './vendor/preact-htm.js';

/** Heights of rows with fast sums (a Fenwick tree). */
export class Heights {
  /** @param {number} estimate height of rows that were never rendered */
  constructor(estimate) {
    this.estimate = estimate;
    this.size = 0;
    this.heights = new Float64Array(1024);
    this.tree = new Float64Array(1025);
  }

  /** @param {number} size number of rows */
  resize(size) {
    if (size === this.size) return;
    if (size > this.heights.length || size < this.size) {
      const heights = new Float64Array(Math.max(1024, size * 2));
      heights.set(this.heights.subarray(0, Math.min(size, this.size)));
      this.heights = heights;
      this.tree = new Float64Array(heights.length + 1);
      const kept = Math.min(size, this.size);
      this.size = 0;
      for (let i = 0; i < kept; i++) this.add(i, heights[i]);
      this.size = kept;
    }
    for (; this.size < size; this.size++) {
      this.heights[this.size] = this.estimate;
      this.add(this.size, this.estimate);
    }
  }

  /** @param {number} index @param {number} delta */
  add(index, delta) {
    for (let i = index + 1; i < this.tree.length; i += i & -i) this.tree[i] += delta;
  }

  /** Sets a height and returns how much it changed. @param {number} index @param {number} height */
  set(index, height) {
    const delta = height - this.heights[index];
    if (delta) {
      this.heights[index] = height;
      this.add(index, delta);
    }
    return delta;
  }

  /** Distance from the top to a row. @param {number} index */
  offset(index) {
    let sum = 0;
    for (let i = index; i > 0; i -= i & -i) sum += this.tree[i];
    return sum;
  }

  /** The row at a distance from the top. @param {number} top */
  at(top) {
    let index = 0;
    let rest = top;
    for (let step = 1 << Math.floor(Math.log2(this.tree.length - 1 || 1)); step; step >>= 1) {
      if (index + step < this.tree.length && this.tree[index + step] <= rest) {
        index += step;
        rest -= this.tree[index];
      }
    }
    return Math.min(index, Math.max(0, this.size - 1));
  }
}

const OVERSCAN = 600;

/**
 * @template {object} T
 * @param {{ items: T[], keyOf: (item: T) => string, render: (item: T, index: number) => any, footer?: any, label: string, handle?: { current: any } }} props
 */
export function VirtualList({ items, keyOf, render, footer, label, handle }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(new Heights(84));
  const atEnd = useRef(true);
  /** The row that gets the focus once it is rendered. */
  const target = useRef(-1);
  const cache = useRef({ render, rows: /** @type {WeakMap<any, { index: number, node: any }>} */ (new WeakMap()) });
  const [, redraw] = useReducer((it) => it + 1, 0);
  heights.current.resize(items.length);

  const view = scroller.current;
  const top = view ? view.scrollTop : 1e9;
  const room = view ? view.clientHeight : 800;
  const total = heights.current.offset(items.length);
  const last = items.length - 1;
  const shownTop = atEnd.current ? Math.max(0, total - room) : Math.min(top, total);
  const first = items.length ? heights.current.at(Math.max(0, shownTop - OVERSCAN)) : 0;
  const end = items.length ? Math.min(last, heights.current.at(shownTop + room + OVERSCAN)) : -1;

  if (handle) {
    handle.current = {
      toEnd: () => {
        atEnd.current = true;
        redraw(0);
      },
      /** Moves the focus to the next row, or the previous one. @param {number} step */
      move: (step) => {
        const view = scroller.current;
        if (!view || !items.length) return;
        const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest('[data-index]'));
        const visible = heights.current.at(view.scrollTop + 1);
        const from = focused && view.contains(focused) ? Number(focused.dataset.index) : step > 0 ? visible - 1 : visible;
        target.current = Math.max(0, Math.min(last, from + step));
        atEnd.current = target.current === last;
        view.scrollTop = heights.current.offset(target.current);
        redraw(0);
      },
    };
  }

  // Measures what was rendered. Rows above the visible part must not move it.
  useLayoutEffect(() => {
    const view = scroller.current;
    if (!view || !body.current) return;
    let shift = 0;
    let changed = false;
    for (const row of /** @type {HTMLElement[]} */ (Array.from(body.current.children))) {
      const index = Number(row.dataset.index);
      const above = heights.current.offset(index) < view.scrollTop;
      const delta = heights.current.set(index, row.offsetHeight);
      if (delta) changed = true;
      if (delta && above && !atEnd.current) shift += delta;
    }
    if (shift) view.scrollTop += shift;
    if (atEnd.current) view.scrollTop = view.scrollHeight;
    const row = target.current < 0 ? null : /** @type {HTMLElement | null} */ (body.current.querySelector(`[data-index="${target.current}"]`));
    if (row) {
      target.current = -1;
      row.focus({ preventScroll: true });
    }
    if (changed) redraw(0);
  });

  useEffect(() => {
    const view = scroller.current;
    if (!view) return;
    let scheduled = false;
    const later = () => {
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        redraw(0);
      });
    };
    const onScroll = () => {
      atEnd.current = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
      later();
    };
    view.addEventListener('scroll', onScroll, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(view);
    if (body.current) observer.observe(body.current);
    return () => {
      view.removeEventListener('scroll', onScroll);
      observer.disconnect();
    };
  }, []);

  // A row that is the same object is not compared again.
  if (cache.current.render !== render) cache.current = { render, rows: new WeakMap() };
  const rows = [];
  for (let i = first; i <= end; i++) {
    const item = items[i];
    let row = cache.current.rows.get(item);
    if (row?.index !== i) {
      row = { index: i, node: html`<div key=${keyOf(item)} data-index=${i} role="article" tabindex="-1">${render(item, i)}</div>` };
      cache.current.rows.set(item, row);
    }
    rows.push(row.node);
  }
  const before = heights.current.offset(first);
  const after = total - heights.current.offset(end + 1);
  return html`<div class="scroller" ref=${scroller} tabindex="0" role="region" aria-label=${label}>
    <div style=${{ height: `${before}px` }}></div>
    <div ref=${body}>${rows}</div>
    <div style=${{ height: `${Math.max(0, after)}px` }}></div>
    ${footer}
  </div>`;
}

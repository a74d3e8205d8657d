// What JavaScript makes of each literal; null where metadata could not hold it.
const refuse = () => { throw new Error('refused'); };

function exact(value) {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return value.isWellFormed() ? value : refuse();
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) refuse();
    return { f: new BigUint64Array(new Float64Array([value + 0]).buffer)[0].toString() };
  }
  if (Array.isArray(value)) return Array.from(value, (item, index) => (index in value ? exact(item) : refuse()));
  if (typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) refuse();
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return { o: entries.map(([key, item]) => (key.isWellFormed() ? [key, exact(item)] : refuse())) };
}

function answer(literal) {
  try {
    return { v: exact((0, eval)(`'use strict';(${literal})`)) };
  } catch {
    return null;
  }
}

const literals = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(literals.map(answer)));

// Uses the API with a client whose types are generated from its OpenAPI document: creates a
// session, sends a prompt, follows the events, decides the gate and reads the answer.
//
// Usage: openapi_client.mjs URL TOKEN. The test type-checks this file with the generated types.

import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';

const [url, token] = process.argv.slice(2);
/** @type {import('openapi-fetch').Client<import('./openapi.d.ts').paths>} */
const client = createClient({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

const created = await client.POST('/api/sessions', { body: { id: 'generated-client' } });
assert.equal(created.response.status, 201);
const session = 'generated-client';

const stream = await client.GET('/api/sessions/{session}/events', {
  params: { path: { session }, query: { after: '0' } },
  parseAs: 'stream',
});
assert.equal(stream.response.status, 200);

/** @param {ReadableStream<Uint8Array>} body */
async function* events(body) {
  const decoder = new TextDecoder();
  let buffer = '';
  for await (const bytes of body) {
    buffer += decoder.decode(bytes, { stream: true });
    for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
      const lines = buffer.slice(0, end).split('\n');
      buffer = buffer.slice(end + 2);
      const data = lines.find((line) => line.startsWith('data: '))?.slice(6);
      const name = lines.find((line) => line.startsWith('event: '))?.slice(7);
      if (data) yield { name, data: JSON.parse(data) };
    }
  }
}

const sent = await client.POST('/api/sessions/{session}/threads/{thread}/prompts', {
  params: { path: { session, thread: 'default' }, header: { 'Idempotency-Key': 'first' } },
  body: { text: 'write' },
});
assert.equal(sent.response.status, 202);
assert(sent.data);
const item = sent.data.id;

/** @type {string[]} */
const seen = [];
assert(stream.data);
for await (const { name, data } of events(/** @type {any} */ (stream.data))) {
  seen.push(name ?? '');
  if (name === 'decision_gate') {
    const { data: list } = await client.GET('/api/gates', { params: { query: { session } } });
    assert.equal(list?.gates.length, 1);
    const decided = await client.POST('/api/gates/{gate}/decision', {
      params: { path: { gate: data.data.gate.id } },
      body: { action: 'approve' },
    });
    assert.equal(decided.response.status, 200);
    assert.equal(decided.data?.repeated, false);
  }
  if (name === 'turn_end') break;
}
assert(seen.includes('decision_gate_resolved'), seen.join());

const answer = await client.GET('/api/prompts/{item}', {
  params: { path: { item }, query: { wait: 30 } },
});
assert.equal(answer.data?.status, 'ended');
assert.equal(answer.data?.text, 'Done.');

// An error is the documented problem.
const unknown = await client.GET('/api/sessions/{session}', { params: { path: { session: 'nope' } } });
assert.equal(unknown.error?.code, 'not_found');

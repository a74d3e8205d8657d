// Exercises `/ag-ui` with the official client, which verifies the order of the events.
//
// Usage: ag_ui_node.mjs URL TOKEN, with the directory of the packages in AG_UI_PACKAGES. The agent
// follows the script in `serve_clients.rs`.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [url, token] = process.argv.slice(2);
const require = createRequire(`${process.env.AG_UI_PACKAGES}/package.json`);
const { HttpAgent } = await import(pathToFileURL(require.resolve('@ag-ui/client')));

const agent = new HttpAgent({
  url: `${url}/ag-ui`,
  headers: { Authorization: `Bearer ${token}` },
  threadId: 'page-1',
});

/** Runs the agent and returns the events by type, and the last one. */
async function run(parameters) {
  const seen = { texts: '', events: [], last: null };
  await agent.runAgent(parameters, {
    onEvent({ event }) {
      seen.events.push(event.type);
      seen.last = event;
      if (event.type === 'TEXT_MESSAGE_CONTENT') seen.texts += event.delta;
    },
  });
  return seen;
}

async function say(content) {
  agent.addMessage({ id: crypto.randomUUID(), role: 'user', content });
  return run({ runId: crypto.randomUUID() });
}

// Carries out a scenario. `cargo xtask docs` lists them in docs/clients/README.md.
async function scenario(client, name, check) {
  try {
    await check();
  } catch (error) {
    console.error(`${client}: ${name}`);
    throw error;
  }
}

await scenario('ag-ui-npm', 'run is streamed in the verified order of events', async () => {
  const first = await say('hi');
  assert.equal(first.texts, 'hello wörld');
  assert.equal(first.events[0], 'RUN_STARTED');
  assert.equal(first.last.type, 'RUN_FINISHED');
  assert.equal(first.last.outcome.type, 'success');
  assert.equal((await say('more')).texts, 'second');
});

// The third turn asks before it writes.
await scenario('ag-ui-npm', 'interrupt is a gate, and resume its decision', async () => {
  const waiting = await say('write');
  assert.equal(waiting.last.outcome.type, 'interrupt');
  const [interrupt] = waiting.last.outcome.interrupts;
  assert.equal(interrupt.reason, 'approval');
  assert.ok(interrupt.responseSchema.properties.action.enum.includes('approve'));
  assert.equal(interrupt.metadata.gate.id, interrupt.id);
  const resumed = await run({
    runId: crypto.randomUUID(),
    resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { action: 'approve' } }],
  });
  assert.equal(resumed.texts, 'Done.');
  assert.ok(resumed.events.includes('TOOL_CALL_RESULT'), resumed.events.join());
  assert.equal(resumed.last.outcome.type, 'success');
  const call = agent.messages.find((message) => message.toolCalls?.length > 0).toolCalls[0];
  assert.equal(call.function.name, 'bash');
  assert.equal((await say('next')).texts, 'last');
});

// Repeating a run has no effect, and a foreign token sees nothing.
await scenario('ag-ui-npm', 'repeated, foreign and invalid runs are refused', async () => {
  const post = (body, headers = {}) => fetch(`${url}/ag-ui`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}`, ...headers },
    body: JSON.stringify(body),
  });
  const again = { threadId: 'page-2', runId: 'r1', messages: [{ id: 'm', role: 'user', content: 'hi' }] };
  for (let i = 0; i < 2; i += 1) {
    const text = await (await post(again)).text();
    assert.equal(text.match(/TEXT_MESSAGE_START/g).length, 1, text);
  }
  assert.equal((await post(again, { Authorization: 'Bearer x' })).status, 401);
  assert.equal((await post({ threadId: 'x' })).status, 400);
  assert.equal((await post({ ...again, threadId: 'page-3', messages: [] })).status, 400);
  const resume = [{ interruptId: 'g-x', status: 'resolved', payload: true }];
  assert.equal((await post({ ...again, threadId: 'page-1', resume })).status, 409);
});

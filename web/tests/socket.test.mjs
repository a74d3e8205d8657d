// Event streams over WebSocket, with commands in the other direction.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, TIMEOUT, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - { text: 'first answer' }
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'done' }
  - { text: 'This takes a while.', chunk_chars: 1, chunk_ms: 20000 }
`;

let browser;
let home;
let server;
let page;

before(async () => {
  browser = await launch();
  home = new Home(SCRIPT);
  server = await Server.start(home);
  page = await openConsole(browser, server);
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

/** Opens a socket in the page, which collects the frames. */
async function openSocket(session, query) {
  await page.evaluate(async (path) => {
    const socket = new WebSocket(new URL(path, location.href.replace(/^http/, 'ws')));
    const frames = [];
    socket.onmessage = (event) => frames.push(JSON.parse(event.data));
    Object.assign(window, { socket, frames });
    await new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });
  }, `/api/sessions/${session}/ws${query}`);
}

const send = (command) => page.evaluate((text) => window.socket.send(text), typeof command === 'string' ? command : JSON.stringify(command));

/** Waits for the frame number `nth` with this event, and returns its data. */
async function frame(event, nth = 1) {
  const found = await page.waitForFunction(
    ([event, nth]) => window.frames.filter((frame) => frame.event === event)[nth - 1],
    [event, nth],
    { timeout: TIMEOUT },
  );
  return (await found.jsonValue()).data;
}

test('commands go in, events and replies come out', async () => {
  const session = await server.createSession();
  await openSocket(session, '?after=0');
  await send({ request: 1, type: 'prompt', key: 'once', prompt: { text: 'go' } });
  const accepted = await frame('reply');
  assert.deepEqual([accepted.request, accepted.status, accepted.result.session], [1, 200, session]);
  assert.equal((await frame('turn_end')).data.reason, 'end_turn');

  // The same key has no further effect.
  await send({ request: 2, type: 'prompt', key: 'once', prompt: { text: 'go' } });
  assert.deepEqual((await frame('reply', 2)).result, accepted.result);

  await send({ request: 3, type: 'prompt', prompt: { text: 'write' } });
  const { gate } = (await frame('decision_gate')).data;
  await send({ request: 4, type: 'decide', gate: gate.id, decision: { action: 'approve' } });
  assert.equal((await frame('reply', 4)).status, 200);
  await frame('turn_end', 2);
  assert.equal(home.read('out.txt'), 'hi\n');

  await send({ request: 5, type: 'prompt', thread: 'default', prompt: { text: 'slowly' } });
  await frame('reply', 5);
  await send({ request: 6, type: 'abort', thread: 'default' });
  assert.equal((await frame('turn_end', 3)).data.reason, 'abort');

  // Stored events have positions, without a gap; live ones and replies have none.
  const { frames } = await page.evaluate(() => ({ frames: window.frames }));
  const stored = frames.filter((frame) => frame.id !== null);
  assert.deepEqual(stored.map((frame) => frame.data.sequence), stored.map((_, at) => at + 1));
  assert.ok(frames.filter((frame) => frame.event === 'reply').every((frame) => frame.id === null));
});

test('an invalid command gets a problem and the socket stays open', async () => {
  const session = await server.createSession();
  await openSocket(session, '');
  assert.equal((await frame('init')).session.id, session);
  await send('{not json');
  assert.equal((await frame('reply')).problem.code, 'invalid_body');
  await send({ request: 'a', type: 'dance' });
  assert.equal((await frame('reply', 2)).status, 400);
  await send({ request: 'b', type: 'prompt', prompt: { text: ' ' } });
  const empty = await frame('reply', 3);
  assert.deepEqual([empty.request, empty.problem.code], ['b', 'empty_prompt']);
  await send({ request: 'c', type: 'pause', thread: 'nothing' });
  assert.equal((await frame('reply', 4)).problem.code, 'not_found');
  await send({ request: 'd', type: 'pause' });
  assert.equal((await frame('reply', 5)).status, 200);
});

test('a page of another origin cannot open a socket', async () => {
  const session = await server.createSession();
  const refused = await fetch(`${server.url}/api/sessions/${session}/ws`, {
    headers: { Authorization: `Bearer ${server.token}`, Origin: 'https://evil.example' },
  });
  assert.deepEqual([refused.status, (await refused.json()).code], [403, 'foreign_origin']);
  const plain = await fetch(`${server.url}/api/sessions/${session}/ws`, { headers: { Authorization: `Bearer ${server.token}` } });
  assert.deepEqual([plain.status, (await plain.json()).code], [426, 'websocket_required']);
});

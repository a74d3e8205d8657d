// The browser's own EventSource: it reconnects with the id of the last event, and misses nothing.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, TIMEOUT, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - { text: 'first answer', chunk_chars: 2, chunk_ms: 1 }
  - { text: 'second answer', chunk_chars: 2, chunk_ms: 1 }
  - { text: 'third answer' }
`;

let browser;
let home;
let server;
let page;
/** The names of all events. */
let types;

before(async () => {
  browser = await launch();
  home = new Home(SCRIPT);
  server = await Server.start(home);
  page = await openConsole(browser, server);
  const { body } = await server.api('GET', '/api/openapi.json');
  types = body.components.schemas.EventKind.oneOf.map((kind) => kind.properties.type.const);
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

/** Opens a stream in the page, which collects the events with an id, the live text and the reconnects. */
async function openStream(session, query) {
  await page.evaluate(([url, types]) => {
    const received = { ids: [], ends: 0, text: '', opened: 0, closing: 0 };
    const source = new EventSource(url);
    source.onopen = () => { received.opened += 1; };
    for (const type of types) {
      source.addEventListener(type, (event) => {
        const { sequence } = JSON.parse(event.data);
        if (sequence === undefined) return;
        received.ids.push([event.lastEventId, sequence]);
        if (type === 'turn_end') received.ends += 1;
      });
    }
    source.addEventListener('text_delta', (event) => { received.text += JSON.parse(event.data).data.text; });
    source.addEventListener('closing', () => { received.closing += 1; });
    Object.assign(window, { received, source });
  }, [`/api/sessions/${session}/events${query}`, types.filter((type) => type !== 'text_delta')]);
}

const received = () => page.evaluate(() => window.received);

/** Waits until the page has received the ends of this many turns. */
const turnsEnded = (count) => page.waitForFunction((count) => window.received.ends >= count, count, { timeout: TIMEOUT });

test('a stream goes on after a restart of the server, without a gap or a duplicate', async () => {
  const session = await server.createSession();
  await openStream(session, '?after=0');
  await server.prompt(session, 'go');
  await turnsEnded(1);
  const before = await received();
  assert.equal(before.text, 'first answer');

  // The browser reconnects on its own, to a server that has never seen this stream.
  const address = `127.0.0.1:${server.port}`;
  await server.stop();
  server = await Server.start(home, address);
  await server.prompt(session, 'go on');
  await turnsEnded(2);
  const after = await received();
  assert.equal(after.closing, 1);
  assert.ok(after.opened >= 2, `opened ${after.opened} times`);

  // Everything that is stored arrived once and in order.
  const all = await server.api('GET', `/api/sessions/${session}`);
  const last = Number(all.body.cursor.split('-').pop());
  await page.waitForFunction((last) => window.received.ids.at(-1)[1] === last, last, { timeout: TIMEOUT });
  const { ids } = await received();
  assert.deepEqual(ids.map(([, sequence]) => sequence), Array.from({ length: last }, (_, at) => at + 1));
  const incarnation = all.body.cursor.split('-')[0];
  assert.deepEqual(ids.map(([id]) => id), ids.map(([, sequence]) => `${incarnation}-${sequence}`));
});

test('a stream that ends when the session is idle is not opened again', async () => {
  const session = await server.createSession();
  const item = await server.prompt(session, 'go');
  await server.answer(item);
  await openStream(session, '?after=0&until=idle');
  // The browser reconnects once, gets 204, and gives up.
  await page.waitForFunction(() => window.source.readyState === EventSource.CLOSED, undefined, { timeout: TIMEOUT });
  assert.equal((await received()).ends, 1);
});

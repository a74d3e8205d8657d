// Sessions from the page: start, watch, steer, stop, fork, verify, and reconnect.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, TIMEOUT, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - { text: 'first answer', usage: { input: 100, output: 10 } }
  - text: 'This long answer is written slowly, so that it can be stopped or steered while it is written.'
    chunk_chars: 1
    chunk_ms: 120
  - { text: 'third answer' }
  - { text: 'fourth answer' }
  - { text: 'fifth answer' }
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

const transcript = () => page.getByRole('region', { name: 'Transcript' });

/** Starts a session on the page and waits for its first answer. */
async function startSession() {
  await page.goto(`${server.url}/#/sessions`);
  await page.getByRole('button', { name: 'New session' }).click();
  await page.getByLabel('Prompt', { exact: true }).fill('hello');
  await page.getByRole('button', { name: 'Start' }).click();
  await transcript().getByText('first answer').waitFor();
  return decodeURIComponent(new URL(page.url()).hash.split('/')[2]);
}

async function send(text) {
  await page.getByRole('textbox', { name: 'Prompt' }).fill(text);
  await page.keyboard.press('Control+Enter');
}

test('session is started from the page with an attachment', async () => {
  await page.goto(`${server.url}/#/sessions`);
  await page.getByRole('button', { name: 'New session' }).click();
  await page.getByLabel('Prompt', { exact: true }).fill('what is this?');
  const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
  await page.getByLabel('Attachments').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: png });
  await page.getByText('dot.png').waitFor();
  await page.getByRole('button', { name: 'Start' }).click();
  await transcript().getByText('what is this?').waitFor();
  await transcript().getByRole('img', { name: 'dot.png' }).waitFor();
});

test('answer is shown while it is written, and stopped', async () => {
  await startSession();
  await send('write');
  await page.locator('.live-message').getByText('This long').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await transcript().getByText('stopped: abort').waitFor();
  await page.getByRole('status').getByText('idle').waitFor();
});

test('prompt is queued and withdrawn while the agent works', async () => {
  await startSession();
  await send('write');
  await page.locator('.live-message').getByText('This').waitFor();
  await send('and then this');
  const queue = page.getByRole('group', { name: 'Queue' });
  await queue.getByText('and then this').waitFor();
  await queue.getByRole('button', { name: 'Withdraw' }).click();
  await queue.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('status').getByText('idle').waitFor();
});

test('prompt steers the agent', async () => {
  await startSession();
  await send('write');
  await page.locator('.live-message').getByText('This').waitFor();
  await page.getByRole('textbox', { name: 'Prompt' }).fill('something else');
  await page.getByRole('button', { name: 'Steer' }).click();
  await transcript().getByText('third answer').waitFor();
});

test('session is forked after an entry, and its record is verified', async () => {
  const first = await startSession();
  await page.getByRole('button', { name: 'Fork here' }).last().click();
  await page.waitForURL((url) => !url.hash.includes(first));
  await transcript().getByText('first answer').waitFor();
  await page.goto(`${server.url}/#/session/${first}`);
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('The record is intact').waitFor();
});

test('every event is shown once, however often the server restarts', async () => {
  const session = await startSession();
  const restarts = Number(process.env.RYE_CONSOLE_RESTARTS ?? 50);
  for (let i = 0; i < restarts; i++) {
    const { port } = server;
    await server.stop();
    server = await Server.start(home, `127.0.0.1:${port}`);
    if (i === 1) {
      // While the page reconnects.
      const steer = await server.prompt(session, `prompt after restart ${i}`);
      await server.api('POST', `/api/sessions/${session}/abort`);
      await server.answer(steer);
    }
  }
  await server.answer(await server.prompt(session, 'last prompt'));
  await transcript().getByText('last prompt').waitFor({ timeout: TIMEOUT });
  const expected = (await server.api('GET', `/api/sessions/${session}/threads/default/entries`)).body.entries.length;
  await page.getByText(`${expected} entries`).waitFor();
  assert.equal(await transcript().getByText('last prompt').count(), 1);
  assert.equal(await transcript().getByText('prompt after restart 1').count(), 1);
});

test('page reports no errors and calls no other host', () => {
  assert.deepEqual(page.problems, []);
});

// Starting sessions, automation, the keyboard, and a page that keeps still.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - { text: 'hello' }
  - { text: "# A title\\n\\nA paragraph that grows, line by line, while the reader reads it.\\n\\n- one\\n- two\\n\\n\`\`\`js\\nlet a = 1;\\n\`\`\`\\n\\nThe end.", chunk_chars: 4, chunk_ms: 15 }
`;

let browser;
let home;
let server;
let page;

before(async () => {
  browser = await launch();
  home = new Home(SCRIPT);
  home.write('.ai/roles/reviewer.md', '---\ndescription: Reviews changes\n---\nReview.');
  home.write('.ai/config/agent/models.yaml', `providers:
  shop: { api: openai_chat, base_url: 'http://127.0.0.1:9/v1', models: { small: { context_window: 32000 } } }
`);
  server = await Server.start(home);
  page = await openConsole(browser, server);
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

const transcript = () => page.getByRole('region', { name: 'Transcript' });
const session = () => decodeURIComponent(new URL(page.url()).hash.split('/')[2]);

test('role is chosen from a list, and a file is dropped', async () => {
  await page.goto(`${server.url}/#/sessions`);
  await page.getByRole('button', { name: 'New session' }).click();
  const dialog = page.getByRole('dialog', { name: 'New session' });
  await dialog.getByLabel('Prompt', { exact: true }).fill('review this');
  const roles = dialog.getByLabel('Role');
  await roles.locator('option', { hasText: 'reviewer' }).waitFor({ state: 'attached' });
  await roles.selectOption('reviewer');
  const listed = (await server.api('GET', '/api/models')).body.models;
  const shown = await dialog.getByLabel('Model').locator('option').allTextContents();
  assert.deepEqual(shown, ['default', ...listed]);
  const dropped = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(['dropped text'], 'notes.txt', { type: 'text/plain' }));
    return data;
  });
  await dialog.dispatchEvent('drop', { dataTransfer: dropped });
  await dialog.getByText('notes.txt').waitFor();
  await dialog.getByRole('button', { name: 'Start' }).click();
  await transcript().getByText('notes.txt').waitFor();
  const { role } = (await server.api('GET', `/api/sessions/${session()}`)).body.session;
  assert.equal(role, 'reviewer');
});

test('nothing that is shown moves while an answer is written', async () => {
  await transcript().getByText('hello').waitFor();
  await page.evaluate(() => {
    window.shifts = [];
    const observer = new PerformanceObserver((list) => {
      for (const it of list.getEntries()) if (!it.hadRecentInput) window.shifts.push(it.value);
    });
    observer.observe({ type: 'layout-shift' });
  });
  await server.answer(await server.prompt(session(), 'write'));
  await transcript().getByText('The end.').waitFor();
  const shifts = await page.evaluate(() => window.shifts);
  const sum = shifts.reduce((all, it) => all + it, 0);
  // What the status line says changes its width. Browsers call a sum below 0.1 good.
  assert.ok(sum < 0.01, `${sum} in ${shifts.length} shifts`);
});

test('schedule and webhook are added and deleted in the settings', async () => {
  await page.goto(`${server.url}/#/settings`);
  await page.getByLabel('Cron expression').fill('every day');
  await page.getByLabel('Prompt of the schedule').fill('daily report');
  await page.getByRole('button', { name: 'Add schedule' }).click();
  await page.getByRole('status').getByText('every day').waitFor();
  await page.getByLabel('Cron expression').fill('0 9 * * 1-5');
  await page.getByRole('button', { name: 'Add schedule' }).click();
  const schedules = page.getByRole('region', { name: 'schedules' });
  await schedules.getByText('daily report').waitFor();
  await schedules.getByRole('button', { name: 'Pause' }).click();
  await schedules.getByText('paused').waitFor();
  await schedules.getByRole('button', { name: 'Run now' }).click();
  await schedules.getByText(/started/).waitFor();
  await schedules.getByRole('button', { name: 'Delete' }).click();
  await schedules.waitFor({ state: 'detached' });

  await page.getByLabel('URL of the new webhook').fill('https://example.org/rye');
  await page.getByLabel('Events of the new webhook').fill('turn_end, decision_gate');
  await page.getByRole('button', { name: 'Add webhook' }).click();
  await page.getByText(/^whsec_/).waitFor();
  const webhooks = page.getByRole('region', { name: 'webhooks' });
  await webhooks.getByText('turn_end, decision_gate').waitFor();
  await webhooks.getByRole('button', { name: 'Delete' }).click();
  await webhooks.waitFor({ state: 'detached' });
});

test('keyboard alone starts a session, walks the pages and answers', async () => {
  const pages = { i: 'Inbox', s: 'Sessions', r: 'Graph runs', t: 'Items', h: 'Hosts', ',': 'Settings' };
  for (const [key, title] of Object.entries(pages)) {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await page.getByRole('heading', { level: 1, name: title }).waitFor();
    // Every stop is visible and can be seen to have the focus.
    for (let i = 0; i < 12; i++) {
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const it = document.activeElement;
        const style = getComputedStyle(it);
        const { width, height } = it.getBoundingClientRect();
        const marked = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
        return { name: it.outerHTML.slice(0, 120), ok: it === document.body || (width > 0 && height > 0 && marked) };
      });
      assert.ok(stop.ok, `${title}: ${stop.name}`);
    }
    await page.evaluate(() => document.activeElement.blur());
  }
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await page.getByRole('heading', { level: 1, name: 'Sessions' }).waitFor();
  await page.keyboard.press('n');
  await page.getByRole('dialog', { name: 'New session' }).waitFor();
  await page.keyboard.type('typed without a mouse');
  for (let i = 0; i < 10; i++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement.textContent === 'Start')) break;
  }
  await page.keyboard.press('Enter');
  await transcript().getByText('typed without a mouse').waitFor();
  await transcript().getByText('hello').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('second prompt');
  await page.keyboard.press('Control+Enter');
  await transcript().getByText('The end.').waitFor();
});

test('page reports no errors and calls no other host', () => {
  assert.deepEqual(page.problems, []);
});

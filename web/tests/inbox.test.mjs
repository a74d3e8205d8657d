// Several gates, the keyboard, items, and runs.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Home, Server, here, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi >> out.txt' } }]
  - { text: 'done' }
`;

let browser;
let home;
let server;
let page;

before(async () => {
  browser = await launch();
  home = new Home(SCRIPT);
  fs.cpSync(path.join(here, '../../examples/graphs/.ai'), path.join(home.project, '.ai'), { recursive: true });
  home.run('sign', '--all');
  server = await Server.start(home);
  page = await openConsole(browser, server);
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

/** Opens gates in sessions of their own and returns the prompts. */
async function openGates(count) {
  const prompts = [];
  for (let i = 0; i < count; i++) prompts.push(await server.prompt(await server.createSession(), `go ${i}`));
  await page.goto(`${server.url}/#/inbox`);
  const rows = page.getByRole('list', { name: 'Pending gates' }).getByRole('listitem');
  await rows.nth(count - 1).waitFor();
  return { prompts, rows };
}

test('several gates are decided at once', async () => {
  const { prompts } = await openGates(3);
  for (const box of await page.getByRole('checkbox', { name: /^Select run/ }).all()) await box.check();
  await page.getByRole('button', { name: 'Approve all' }).click();
  await page.getByText('Nothing waits for you').waitFor();
  for (const prompt of prompts) assert.equal((await server.answer(prompt)).text, 'done');
});

test('keys alone choose, edit, approve and deny', async () => {
  const { prompts, rows } = await openGates(3);
  const isCurrent = (index) => rows.nth(index).and(page.locator('.current')).waitFor();
  await page.keyboard.press('j');
  await page.waitForURL(/inbox\/.+/);
  await page.keyboard.press('j');
  await isCurrent(1);
  await page.keyboard.press('k');
  await isCurrent(0);

  await page.keyboard.press('d');
  await page.keyboard.type('not today');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.rows .row').length === 2);

  await page.keyboard.press('e');
  const text = page.getByRole('textbox', { name: 'Arguments' });
  await text.waitFor();
  await text.fill(JSON.stringify({ command: 'echo edited > edited.txt' }));
  await page.keyboard.press('Tab');
  await page.getByRole('button', { name: 'Approve edited' }).focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.rows .row').length === 1);
  await page.keyboard.press('a');
  await page.getByText('Nothing waits for you').waitFor();
  const answers = await Promise.all(prompts.map((prompt) => server.answer(prompt)));
  assert.deepEqual(answers.map((it) => it.status), ['ended', 'ended', 'ended']);
  assert.equal(home.read('edited.txt'), 'edited\n');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Filter gates');
  await page.keyboard.press('Escape');
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await page.getByRole('heading', { name: 'Sessions' }).waitFor();
});

test('characters that would be hidden are shown', async () => {
  home.write('hidden.yaml', `steps:\n  - tool_calls: [{ name: bash, args: { command: "ls \\u202egnp.exe \\u200b" } }]\n  - { text: done }\n`);
  const session = (await server.api('POST', '/api/sessions', { model: 'scripted:hidden.yaml' })).body.session.id;
  await server.prompt(session, 'go');
  await page.goto(`${server.url}/#/inbox`);
  await page.getByTitle('hidden character').filter({ hasText: 'U+202E' }).first().waitFor();
  await page.keyboard.press('d');
  await page.keyboard.press('Enter');
  await page.getByText('Nothing waits for you').waitFor();
});

test('question of an agent is answered with one of its options', async () => {
  home.write('ask.yaml', "steps:\n  - tool_calls: [{ name: ask, args: { question: 'Which colour?', options: [red, blue] } }]\n  - { text: painted }\n");
  const session = (await server.api('POST', '/api/sessions', { model: 'scripted:ask.yaml' })).body.session.id;
  const prompt = await server.prompt(session, 'go');
  await page.goto(`${server.url}/#/session/${session}`);
  await page.getByRole('button', { name: 'blue' }).click();
  assert.equal((await server.answer(prompt)).text, 'painted');
  const [gate] = (await server.api('GET', `/api/gates?session=${session}&status=all`)).body.gates;
  assert.equal(gate.status.resolution.value, 'blue');
});

test('item is found, read and run with the form of its schema', async () => {
  await page.goto(`${server.url}/#/items`);
  await page.getByRole('searchbox', { name: 'Search items' }).fill('publishes artifact');
  await page.getByRole('link', { name: /lib\/publish/ }).click();
  await page.getByRole('heading', { name: 'Source' }).waitFor();
  await page.getByText('verified').first().waitFor();
  await page.goto(`${server.url}/#/items/tool/rye%2Ffile-system%2Fglob`);
  await page.getByRole('textbox', { name: /pattern/ }).fill('*.yaml');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('group', { name: 'result' }).getByText('agent.yaml').first().waitFor();
});

test('graph is started from its item and coloured while it runs', async () => {
  await page.goto(`${server.url}/#/items/tool/workflows%2Frelease`);
  await page.getByRole('textbox', { name: /version/ }).fill('2.0');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('button', { name: 'build, completed' }).waitFor();
  await page.getByRole('button', { name: 'approve, waiting' }).waitFor();
  await page.getByRole('link', { name: 'a decision' }).click();
  await page.getByRole('heading', { name: 'publish 2.0?' }).waitFor();
  await page.getByRole('button', { name: /^Approve/ }).first().click();
  await page.getByText('Nothing waits for you').waitFor();
  await page.goto(`${server.url}/#/runs`);
  await page.getByRole('link', { name: /workflows\/release/ }).first().click();
  await page.getByRole('button', { name: 'done, completed' }).waitFor();
  await page.getByRole('button', { name: 'publish, completed' }).click();
  await page.getByRole('heading', { name: 'publish' }).waitFor();
});

test('token is created and revoked', async () => {
  await page.goto(`${server.url}/#/settings`);
  await page.getByLabel('Name of the new token').fill('ci');
  await page.getByRole('button', { name: 'Create token' }).click();
  await page.getByText('shown once').waitFor();
  await page.getByRole('button', { name: /^Revoke ci/ }).click();
  await page.getByRole('cell', { name: 'ci', exact: true }).waitFor({ state: 'detached' });
});

test('page reports no errors and calls no other host', () => {
  assert.deepEqual(page.problems, []);
});

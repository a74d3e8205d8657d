// What the page shows of records: altered ones, exports, compactions, and changed files.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Home, Server, launch, openConsole } from './support.mjs';

let browser;
let home;
let server;
let page;

before(async () => {
  browser = await launch();
  home = new Home("steps: [{ text: 'one' }, { text: 'two' }, { text: 'three' }, { text: 'four' }]\n");
  server = await Server.start(home);
  page = await openConsole(browser, server);
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

const transcript = () => page.getByRole('region', { name: 'Transcript' });
const open = (session) => page.goto(`${server.url}/#/session/${encodeURIComponent(session)}`);

/** Runs a prompt without the server and returns the session. */
function prompt(text, ...options) {
  const args = ['prompt', text, '--model', 'scripted:agent.yaml', '--sandbox', 'virtual', '--json', ...options];
  const lines = home.run(...args).trim().split('\n').map((line) => JSON.parse(line));
  return lines.find((it) => it.session).session;
}

/** Replaces a text everywhere in the record of a session. */
function alter(from, to) {
  const file = path.join(home.root, 'user/.local/state/rye/sessions.db');
  const script = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
changed = db.execute('UPDATE engine_log SET doc = replace(doc, ?, ?) WHERE doc LIKE ?', (sys.argv[2], sys.argv[3], '%' + sys.argv[2] + '%'))
db.commit()
print(changed.rowcount)`;
  const done = spawnSync('python3', ['-c', script, file, from, to], { encoding: 'utf8' });
  assert.ok(Number(done.stdout) > 0, done.stderr);
}

test('altered record is marked, with the place of the alteration', async () => {
  const session = prompt('is this altered?');
  await open(session);
  await page.getByRole('button', { name: 'Verify' }).click();
  const verdict = page.getByRole('status', { name: 'Verification' });
  await verdict.getByText('The record is intact').waitFor();
  await verdict.getByRole('button', { name: 'Close' }).click();
  alter('is this altered?', 'this is altered!');
  await page.getByRole('button', { name: 'Verify' }).click();
  await verdict.getByText('The record was altered').waitFor();
  assert.ok(await verdict.getByRole('listitem').count() > 0);
  assert.ok((await verdict.getAttribute('class')).includes('bad'));
});

test('export is a file that verifies elsewhere', async () => {
  const session = prompt('export this');
  await open(session);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Export' }).click()]);
  assert.match(download.suggestedFilename(), /\.jsonl$/);
  const file = path.join(home.root, 'export.jsonl');
  await download.saveAs(file);
  assert.ok(fs.readFileSync(file, 'utf8').includes('export this'));
  await server.api('DELETE', `/api/sessions/${session}`);
  home.run('session', 'import', file);
  assert.equal((await server.api('GET', `/api/sessions/${session}/verify`)).body.verified, true);
});

test('compaction is a boundary with the summary behind it', async () => {
  const session = prompt('tell a story');
  // The last two turns are kept.
  for (const text of ['a long story '.repeat(500), 'third', 'fourth']) prompt(text, '--session', session);
  home.run('session', 'compact', session);
  await open(session);
  await transcript().getByText(/compacted \d+ entries/).waitFor();
  await transcript().getByText('Summary that the model sees instead').click();
  const { entries } = (await server.api('GET', `/api/sessions/${session}/threads/default/entries`)).body;
  const { summary } = entries.find((it) => it.kind.type === 'compaction').kind;
  await transcript().getByText(summary.split('\n')[0].replace(/^#+ /, ''), { exact: true }).waitFor();
});

test('gate shows what changed in a file since the last approval', async () => {
  const write = (command) => {
    home.write('.ai/tools/my/risky.yaml', `version: '1.0.0'\ndescription: Writes a file\nrisk_level: high\nexecutor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: '${command}'\n`);
    home.run('sign', 'tool:my/risky');
  };
  write('echo one');
  const call = { tool_calls: [{ name: 'call_tool', args: { tool_id: 'rye:my/risky', summary: 'write it' } }] };
  const done = { text: 'done' };
  const { session, item } = await server.startSession({ steps: [call, done, call, done] }, 'run it');
  const first = await server.gate(session);
  assert.equal((await server.api('POST', `/api/gates/${first.id}/decision`, { action: 'approve' })).status, 200);
  await server.answer(item);
  write('echo two');
  await server.prompt(session, 'again');
  const second = await server.gate(session);
  await page.goto(`${server.url}/#/inbox/${encodeURIComponent(second.id)}`);
  await page.getByRole('heading', { name: 'Changed since the last approval' }).waitFor();
  const diff = page.getByRole('region', { name: 'Details of the gate' });
  await diff.getByText("-  command: 'echo one'").waitFor();
  await diff.getByText("+  command: 'echo two'").waitFor();
});

test('page reports no errors and calls no other host', () => {
  assert.deepEqual(page.problems, []);
});

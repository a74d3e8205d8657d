// Every page with real data: no violation that axe-core finds, in light and dark, on desktop and
// phone. With RYE_SCREENSHOTS, the pictures of the documentation.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Home, Server, TIMEOUT, here, launch, openConsole, violations } from './support.mjs';

const SCRIPT = `steps:
  - thinking: The parser splits at commas. I look at the code first.
    text: I'll look at the parser and its tests.
    tool_calls: [{ name: read, args: { path: src/parse.py } }]
  - text: The bug is in \`split\`. I'll fix it and run the tests.
    tool_calls: [{ name: edit, args: { path: src/parse.py, old: 'line.split(",")', new: 'next(csv.reader([line]))' } }]
    usage: { input: 3200, output: 240 }
  - text: |
      The parser **reads quoted commas** now.

      | case | before | after |
      |---|---|---|
      | \`a,b\` | 2 fields | 2 fields |
      | \`"a,b",c\` | 3 fields | 2 fields |

      \`\`\`python
      def fields(line):
          # The csv module knows about quotes.
          return next(csv.reader([line]))
      \`\`\`

      - \`src/parse.py\` changed in one place
      - see https://docs.python.org/3/library/csv.html
    usage: { input: 4100, output: 310 }
`;

const GATED = `steps:
  - text: I need the build from the server.
    tool_calls: [{ name: bash, args: { command: "rsync -a --delete build/ deploy@example.org:/srv/www/ && ssh deploy@example.org 'systemctl reload nginx'   # publish" } }]
  - text: Published.
`;

const TOOL = `steps:
  - text: I'll publish the artifact.
    tool_calls: [{ name: call_tool, args: { tool_id: "rye:lib/publish", params: { artifact: "app-1.2.tar.gz" }, summary: "publish the release that the tests passed" } }]
  - text: Published.
`;

let browser;
let home;
let server;
let ids;

before(async () => {
  browser = await launch();
  home = new Home(SCRIPT);
  home.write('gated.yaml', GATED);
  home.write('tool.yaml', TOOL);
  home.write('src/parse.py', 'import csv\n\ndef fields(line):\n    return line.split(",")\n');
  fs.cpSync(path.join(here, '../../examples/graphs/.ai'), path.join(home.project, '.ai'), { recursive: true });
  home.write('.ai/config/agent/approvals.yaml', 'rules:\n  - { tool: "rye:lib/publish", action: ask }\n');
  home.run('sign', '--all');
  server = await Server.start(home);
  ids = await world();
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

/** Creates sessions, gates and a run. */
async function world() {
  const create = async (options, text) => {
    const session = (await server.api('POST', '/api/sessions', options)).body.session.id;
    return { session, item: await server.prompt(session, text) };
  };
  const fix = await create({}, 'fix the parser: quoted commas');
  await create({ model: 'scripted:gated.yaml' }, 'publish the site');
  await create({ model: 'scripted:tool.yaml' }, 'publish app 1.2');
  const started = await server.api('POST', `/api/graphs/${encodeURIComponent('workflows/release')}/runs`, { parameters: { version: '1.2' } });
  const deadline = Date.now() + TIMEOUT;
  let gates = [];
  while (Date.now() < deadline) {
    gates = (await server.api('GET', '/api/gates')).body.gates;
    // Approve the edit of the first session, which then ends.
    const edit = gates.find((gate) => gate.origin.session === fix.session);
    if (edit) await server.api('POST', `/api/gates/${edit.id}/decision`, { action: 'approve' });
    if ((await server.api('GET', `/api/prompts/${fix.item}?wait=1`)).body.status === 'ended' && gates.length >= 3) break;
  }
  const gate = gates.find((it) => it.title.includes('rsync')).id;
  return { fix: fix.session, run: started.body.session, gate };
}

const VIEWS = [
  { name: 'desktop-light', viewport: { width: 1120, height: 700 }, colorScheme: 'light' },
  { name: 'desktop-dark', viewport: { width: 1120, height: 700 }, colorScheme: 'dark' },
  { name: 'phone-light', viewport: { width: 360, height: 640 }, colorScheme: 'light', isMobile: true, hasTouch: true },
  { name: 'phone-dark', viewport: { width: 360, height: 640 }, colorScheme: 'dark', isMobile: true, hasTouch: true },
];

/** Pages, with what shows that they are complete. */
const pages = () => [
  ['inbox', '#/inbox', 'Pending gates'],
  ['gate', `#/inbox/${encodeURIComponent(ids.gate)}`, 'Arguments'],
  ['sessions', '#/sessions', 'fix the parser'],
  ['session', `#/session/${ids.fix}`, 'reads quoted commas'],
  ['timeline', `#/session/${ids.fix}/timeline`, 'spans'],
  ['items', '#/items/tool/workflows%2Frelease', 'Source'],
  ['runs', `#/runs/${ids.run}`, 'Input'],
  ['hosts', '#/hosts', 'this server'],
  ['settings', '#/settings', 'Spend'],
];

for (const view of VIEWS) {
  test(`pages are accessible and fit: ${view.name}`, async () => {
    const login = home.run('token', 'login', '--url', server.url).trim();
    const { name, ...options } = view;
    const page = await openConsole(browser, { url: server.url, login }, options);
    const found = [];
    for (const [title, hash, complete] of pages()) {
      await page.goto(`${server.url}/${hash}`);
      const whole = { inbox: page.getByRole('list', { name: complete }), items: page.getByRole('heading', { name: complete }) };
      await (whole[title] ?? page.getByText(complete).first()).waitFor();
      if (title === 'inbox') {
        if (view.viewport.width < 500) await page.getByRole('link', { name: /rsync/ }).waitFor();
        else await page.getByRole('link', { name: /lib\/publish/ }).click();
      }
      if (title === 'gate') await page.getByRole('heading', { name: /rsync/ }).waitFor();
      if (title === 'runs') await page.locator('.graph .node').first().waitFor();
      for (const problem of await violations(page)) found.push(`${title}: ${problem}`);
      const wide = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll('main, .page, .pane, .scroller, .page-head')].some((it) => it.scrollWidth > it.clientWidth + 1));
      if (wide) found.push(`${title}: is wider than the window`);
      if (process.env.RYE_SCREENSHOTS) await shoot(page, `${title}-${name}`);
    }
    assert.deepEqual(found, []);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  });
}

async function shoot(page, name) {
  const folder = path.resolve(process.env.RYE_SCREENSHOTS);
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.png`), animations: 'disabled' });
}

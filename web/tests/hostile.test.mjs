// Transcripts, gates and items that try to do harm: everything in them is text.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, launch, openConsole } from './support.mjs';

const SCRIPTS = [
  '<script>window.harmed = 1</script>',
  '<img src=x onerror="window.harmed = 2">',
  '<svg onload="window.harmed = 3"><a href="javascript:window.harmed=4">x</a></svg>',
  '<iframe srcdoc="<script>parent.harmed = 5</script>"></iframe>',
  '[link](javascript:window.harmed=6) [data](data:text/html,<script>opener.harmed=7</script>) ![image](https://tracker.example/pixel.png)',
  '`<b onmouseover=window.harmed=8>` **<i onclick=window.harmed=9>bold</i>** <https://tracker.example/>',
  '${window.harmed = 10} {{constructor.constructor("window.harmed = 11")()}}',
];
/** An override that would show `exe.txt` instead of `txt.exe`, marks, a hidden space, and an escape sequence. */
const HIDDEN = 'invoice\u202etxt.exe a\u200bb \u2066isolated\u2069 \u001b[31mred\u001b[0m \u{e0041}tag \ufeff';
const ZALGO = 'Z' + '\u0301\u0323\u0334'.repeat(400);
const LINE = 'x'.repeat(2_000_000);
const DEEP = '>'.repeat(3000) + ' quoted\n' + Array.from({ length: 2000 }, (_, i) => `${'  '.repeat(Math.min(i, 400))}- item`).join('\n');
const MARKS = [
  '`'.repeat(20_000), '*'.repeat(20_000), '**a '.repeat(8000), '_a'.repeat(8000), '~~'.repeat(8000), '['.repeat(20_000), '[a]('.repeat(5000),
  '|'.repeat(20_000) + '\n' + '|-'.repeat(10_000), '- '.repeat(9000), '#'.repeat(20_000) + ' x',
].join('\n\n');

let browser;
let home;
let server;
let page;

before(async () => {
  browser = await launch();
  home = new Home('steps: []\n');
  server = await Server.start(home);
  page = await openConsole(browser, server);
  // A page of another program must not be opened or asked.
  page.context().on('page', (other) => page.problems.push(`opened ${other.url()}`));
  page.on('dialog', (dialog) => page.problems.push(`dialog ${dialog.message()}`));
  await page.addInitScript(() => {
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((it) => it.duration))).observe({ type: 'longtask' });
  });
  await page.reload();
});

after(async () => {
  await server?.stop();
  await browser?.close();
  home?.remove();
});

/** Fails if something of a text became more than text. */
async function assertHarmless() {
  const found = await page.evaluate(() => ({
    harmed: window.harmed,
    scripts: document.scripts.length,
    handlers: [...document.querySelectorAll('*')].filter((it) => it.getAttributeNames().some((name) => name.startsWith('on'))).length,
    elements: document.querySelectorAll('#app iframe, #app object, #app embed, #app form[action], #app base, #app meta, #app style').length,
    links: [...document.querySelectorAll('a[href]')].map((it) => it.getAttribute('href')).filter((it) => !/^(#|\/api\/|https?:|mailto:|blob:)/.test(it)),
    images: [...document.querySelectorAll('#app img[src]')].map((it) => it.getAttribute('src')).filter((it) => !/^(\/console\/|blob:|data:image\/)/.test(it)),
    wide: [document.documentElement, ...document.querySelectorAll('main, .page, .pane, .scroller')].filter((it) => it.scrollWidth > it.clientWidth + 1).map((it) => it.className),
  }));
  assert.deepEqual(found, { harmed: undefined, scripts: 1, handlers: 0, elements: 0, links: [], images: [], wide: [] });
  assert.deepEqual(page.problems, []);
}

const transcript = () => page.getByRole('region', { name: 'Transcript' });

test('HTML, scripts and links of a transcript are text', async () => {
  const script = { steps: [
    { thinking: SCRIPTS.join('\n'), text: SCRIPTS.join('\n\n'), tool_calls: [{ name: 'read', args: { path: SCRIPTS.join(' ') } }, { name: SCRIPTS[1], args: { command: SCRIPTS[0], '<b>key</b>': SCRIPTS[2] } }] },
    { text: 'the end' },
  ] };
  const { session, item } = await server.startSession(script, SCRIPTS.join('\n'));
  await server.answer(item);
  await page.goto(`${server.url}/#/session/${session}`);
  await transcript().getByText('the end').waitFor();
  await page.evaluate(() => document.querySelectorAll('.scroller details').forEach((it) => { it.open = true; }));
  await transcript().getByText(SCRIPTS[0]).first().waitFor();
  await assertHarmless();
  for (const tab of ['timeline', 'details']) {
    await page.goto(`${server.url}/#/session/${session}/${tab}`);
    await page.getByRole('heading', { level: 1 }).getByText('<script>').waitFor();
    await assertHarmless();
  }
  await page.goto(`${server.url}/#/sessions`);
  await page.getByRole('link', { name: /<script>/ }).waitFor();
  await assertHarmless();
});

test('characters that reorder or hide text are shown as code points', async () => {
  const { session } = await server.startSession({ steps: [{ text: `${HIDDEN} and ${ZALGO}`, tool_calls: [{ name: 'bash', args: { command: `rm ${HIDDEN}` } }] }, { text: 'ok' }] }, HIDDEN);
  await server.gate(session);
  await page.goto(`${server.url}/#/session/${session}`);
  const answer = page.locator('.entry.assistant').first();
  await answer.waitFor();
  for (const place of [answer, page.locator('.entry.user').first(), page.getByRole('group', { name: 'command' })]) {
    const text = await place.innerText();
    for (const name of ['U+202E', 'U+200B', 'U+2066', 'U+001B', 'U+E0041', 'U+FEFF']) assert.ok(text.includes(name), `${name} in ${text.slice(0, 300)}`);
    assert.ok(!/[\u202e\u200b\u2066\u001b]/.test(text));
  }
  // Marks are stacked within the entry.
  const boxes = await page.evaluate(() => [...document.querySelectorAll('.entry.assistant .entry-body')].map((it) => getComputedStyle(it).overflow));
  assert.deepEqual([...new Set(boxes)], ['clip']);
  await assertHarmless();
  await page.goto(`${server.url}/#/inbox`);
  await page.getByRole('group', { name: 'command' }).getByText('U+202E').waitFor();
  await assertHarmless();
  await page.keyboard.press('d');
  await page.keyboard.press('Enter');
  await page.getByText('Nothing waits for you').waitFor();
});

test('right-to-left letters do not reorder a command', async () => {
  const { session } = await server.startSession({ steps: [{ tool_calls: [{ name: 'bash', args: { command: 'cp א ב' } }] }, { text: 'ok' }] }, 'go');
  await server.gate(session);
  await page.goto(`${server.url}/#/session/${session}`);
  const code = page.getByRole('group', { name: 'command' });
  await code.waitFor();
  // The first letter is left of the second one.
  const [first, second] = await code.evaluate((pre) => {
    const text = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT).nextNode();
    return [3, 5].map((at) => {
      const range = document.createRange();
      range.setStart(text, at);
      range.setEnd(text, at + 1);
      return range.getBoundingClientRect().left;
    });
  });
  assert.ok(first < second, `${first} ${second}`);
  await page.keyboard.press('d');
  await page.keyboard.press('Enter');
});

test('huge lines, deep nesting and many marks do not block the page', async (t) => {
  home.write('huge.txt', LINE);
  const steps = [{ text: DEEP, tool_calls: [{ name: 'read', args: { path: 'huge.txt' } }, { name: 'write', args: { path: 'copy.txt', content: LINE.slice(0, 400_000) } }] },
    { text: MARKS }, { text: LINE.slice(0, 500_000) }];
  const { session, item } = await server.startSession({ steps }, LINE.slice(0, 300_000));
  const answered = server.answer(item);
  await page.goto(`${server.url}/#/session/${session}`);
  assert.equal((await answered).status, 'ended');
  await transcript().getByRole('button', { name: /^Show all/ }).last().waitFor();
  await page.evaluate(() => document.querySelectorAll('.scroller details').forEach((it) => { it.open = true; }));
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press('k');
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await assertHarmless();
  const tasks = await page.evaluate(() => window.tasks);
  t.diagnostic(`longest task ${Math.round(Math.max(0, ...tasks))} ms`);
  assert.ok(Math.max(0, ...tasks) < 1000, `tasks of ${tasks.map(Math.round)} ms`);
});

test('attachment is never a page of this server', async () => {
  const html = Buffer.from('<script>window.harmed = 20</script>').toString('base64');
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><script>window.harmed = 21</script></svg>').toString('base64');
  const session = await server.createSession();
  const attachments = [
    { type: 'attachment', name: '<b>page</b>.html', mime_type: 'text/html', source: `data:text/html;base64,${html}` },
    { type: 'attachment', name: '../../drawing.svg', mime_type: 'image/svg+xml', source: `data:image/svg+xml;base64,${svg}` },
  ];
  const { body } = await server.api('POST', `/api/sessions/${session}/threads/default/prompts`, { text: 'look', attachments });
  await server.answer(body.id);
  await page.goto(`${server.url}/#/session/${session}`);
  await transcript().getByRole('link', { name: /page/ }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll('.attachment a[href^="blob:"]').length === 2);
  for (const attachment of await transcript().locator('.attachment a').all()) {
    assert.ok(await attachment.getAttribute('download'));
  }
  await assertHarmless();
});

test('item is shown as text', async () => {
  home.write('.ai/knowledge/hostile.md', `# ${SCRIPTS.join('\n\n')}\n${HIDDEN}\n`);
  home.write('.ai/tools/hostile.py', `__version__ = "1.0.0"\n__tool_type__ = "python"\n__executor_id__ = "rye/core/runtimes/python/function"\n__tool_description__ = ${JSON.stringify(SCRIPTS[1])}\nCONFIG_SCHEMA = {"type": "object", "properties": {"<b>x</b>": {"type": "string", "description": ${JSON.stringify(SCRIPTS[0])}}}}\ndef execute(params, project_path):\n    return {"out": ${JSON.stringify(SCRIPTS[0])}}\n`);
  home.run('sign', '--all');
  for (const name of ['knowledge/hostile', 'tool/hostile']) {
    await page.goto(`${server.url}/#/items/${name}`);
    await page.getByRole('heading', { name: 'Source' }).waitFor();
    await assertHarmless();
  }
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('group', { name: 'result' }).getByText(SCRIPTS[0]).waitFor();
  await assertHarmless();
});

test('policy of the page forbids what a mistake could let in', async () => {
  const refused = await page.evaluate(async () => {
    const results = [];
    const violations = [];
    document.addEventListener('securitypolicyviolation', (event) => violations.push(event.effectiveDirective));
    for (const work of [
      () => { document.body.innerHTML += '<b>x</b>'; },
      () => { document.createElement('script').src = 'https://tracker.example/x.js'; },
      () => { document.body.setAttribute('onclick', 'window.harmed = 30'); document.body.click(); document.body.removeAttribute('onclick'); if (window.harmed !== 30) throw new Error('not run'); },
    ]) {
      try { work(); results.push('allowed'); } catch (error) { results.push(error.name); }
    }
    // The debugger that runs this test may evaluate text, the page later may not.
    await new Promise((resolve) => setTimeout(() => {
      try { results.push(new Function('return "allowed"')()); } catch (error) { results.push(error.name); }
      resolve();
    }));
    await fetch('https://tracker.example/').catch((error) => results.push(error.name));
    return { results, violations };
  });
  assert.ok(!refused.results.includes('allowed'), JSON.stringify(refused));
  assert.ok(refused.results.length === 5);
  // What this test provoked.
  page.problems.length = 0;
});

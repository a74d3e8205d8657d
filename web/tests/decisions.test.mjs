// From the login link to a decision that this browser signed.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Home, Server, launch, openConsole } from './support.mjs';

const SCRIPT = `steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'done', usage: { input: 1000, output: 20 } }
`;

let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

/** Runs a test with a server, a page and a pending gate. */
async function withGate(work) {
  const home = new Home(SCRIPT);
  const server = await Server.start(home);
  try {
    const session = await server.createSession();
    const item = await server.prompt(session, 'go');
    const page = await openConsole(browser, server);
    await page.getByRole('heading', { name: 'run: echo hi > out.txt' }).waitFor();
    await work({ home, server, page, session, item });
    assert.deepEqual(page.problems, []);
    await page.context().close();
  } finally {
    await server.stop();
    home.remove();
  }
}

/** Creates the key of the browser and confirms it in a terminal. */
async function enrol(home, page) {
  await page.getByRole('button', { name: 'Create a key' }).click();
  const command = await page.locator('.list-pane .command code').textContent();
  const [, , , file] = command.split(' ');
  assert.match(command, /^rye keys trust /);
  const trusted = JSON.parse(home.run('keys', 'trust', file, '--yes', '--json'));
  await page.getByText('Signed with the key of this browser').waitFor();
  return trusted.fingerprint;
}

test('decision made in the browser is signed there and verifies offline', async () => {
  await withGate(async ({ home, server, page, session, item }) => {
    const fingerprint = await enrol(home, page);
    await page.keyboard.press('a');
    await page.getByText('Nothing waits for you').waitFor();
    assert.equal((await server.answer(item)).text, 'done');
    assert.equal(home.read('out.txt'), 'hi\n');

    const [gate] = (await server.api('GET', `/api/gates?session=${session}&status=all`)).body.gates;
    const { receipt, source } = gate.status.resolution;
    assert.deepEqual([receipt.key, source], [fingerprint, 'web']);
    const verified = JSON.parse(home.run('session', 'verify', session, '--json'));
    assert.ok(JSON.stringify(verified).includes(fingerprint));
    assert.match(home.run('session', 'verify', session), /ada in Chrome on Linux/);
  });
});

test('server refuses a decision that differs from the signed one', async () => {
  await withGate(async ({ home, server, page, session }) => {
    await enrol(home, page);
    // Someone between the browser and the server changes the decision.
    await page.route(/\/decision$/, async (route) => {
      const body = route.request().postDataJSON();
      await route.continue({ postData: JSON.stringify({ ...body, action: 'approve' }) });
    });
    await page.keyboard.press('d');
    await page.getByPlaceholder('Reason for the model').fill('not now');
    await page.keyboard.press('Enter');
    await page.getByText('the receipt is for another decision').waitFor();
    const pending = (await server.api('GET', `/api/gates?session=${session}`)).body.gates;
    assert.equal(pending.length, 1);
  });
});

test('question that was shown differently is not decided', async () => {
  const shown = /\/api\/gates$/;
  await withGate(async ({ home, page }) => {
    await enrol(home, page);
    await page.route(shown, async (route) => {
      const response = await route.fetch();
      const text = (await response.text()).replaceAll('echo hi > out.txt', 'ls');
      await route.fulfill({ response, body: text });
    });
    await page.reload();
    await page.getByRole('heading', { name: 'run: ls' }).waitFor();
    await page.getByText('Signed with the key of this browser').waitFor();
    await page.keyboard.press('a');
    await page.getByText('the question differs from the answered one').waitFor();
  });
});

test('edited arguments and a reason with any characters are signed exactly', async () => {
  await withGate(async ({ home, server, page, session, item }) => {
    await enrol(home, page);
    await page.keyboard.press('d');
    await page.getByPlaceholder('Reason for the model').fill('nö "\\ \u{1f980} \u2028');
    await page.keyboard.press('Enter');
    await page.getByText('Nothing waits for you').waitFor();
    await server.answer(item);
    const verified = JSON.parse(home.run('session', 'verify', session, '--json'));
    assert.ok(verified);
  });
});

test('browser cannot confirm its own key, a token can', async () => {
  await withGate(async ({ server, page }) => {
    await page.getByRole('button', { name: 'Create a key' }).click();
    const fingerprint = await page.locator('.note code').first().textContent();
    const path = `/api/browser-keys/${fingerprint}/confirm`;
    const own = await page.evaluate(async (path) => (await (await fetch(path, { method: 'POST' })).json()).code, path);
    assert.equal(own, 'needs_token');
    const confirmed = await server.api('POST', path);
    assert.equal(confirmed.body.trusted, true);
    await page.getByText('Signed with the key of this browser').waitFor();
  });
});

test('private key cannot leave the browser', async () => {
  await withGate(async ({ page }) => {
    await page.getByRole('button', { name: 'Create a key' }).click();
    await page.locator('.note code').first().waitFor();
    const refused = await page.evaluate(() => new Promise((resolve) => {
      const request = indexedDB.open('rye', 1);
      request.onsuccess = () => {
        const get = request.result.transaction('keys').objectStore('keys').get('decisions');
        get.onsuccess = () => crypto.subtle.exportKey('pkcs8', get.result.privateKey).then(() => 'exported', (error) => error.name);
        get.onsuccess = async () => resolve(await crypto.subtle.exportKey('pkcs8', get.result.privateKey).then(() => 'exported', (error) => error.name));
      };
    }));
    assert.equal(refused, 'InvalidAccessError');
  });
});

test('browser without a trusted key decides with the key of the server, and the record says so', async () => {
  await withGate(async ({ server, page, session, item }) => {
    await page.getByText('Signed with the key of the server').waitFor();
    await page.keyboard.press('a');
    await server.answer(item);
    const [gate] = (await server.api('GET', `/api/gates?session=${session}&status=all`)).body.gates;
    assert.equal(gate.status.resolution.source, 'web (signed by the server)');
  });
});

test('gate that is decided elsewhere disappears at once', async () => {
  await withGate(async ({ home, page }) => {
    home.run('gate', 'approve', JSON.parse(home.run('gate', 'list', '--json')).gates[0].id);
    // Before the page asks again, ten seconds after it was opened.
    await page.getByText('Nothing waits for you').waitFor({ timeout: 5000 });
  });
});

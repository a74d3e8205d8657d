// A server with a scripted model, and a browser.

import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(`${process.env.RYE_CONSOLE_MODULES}/`);
const { chromium } = require('playwright-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const RYE = path.resolve(process.env.RYE_BIN);

/** How long a test waits for something that is about to happen. */
export const TIMEOUT = 20_000;

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** A browser. Its profile is empty and is removed at the end. */
export function launch() {
  return chromium.launch({ executablePath: process.env.RYE_CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
}

/** A home with a key, and a project. */
export class Home {
  constructor(script) {
    this.root = fs.mkdtempSync(path.join(os.tmpdir(), 'rye-console-'));
    this.project = path.join(this.root, 'project');
    fs.mkdirSync(path.join(this.project, '.ai'), { recursive: true });
    fs.mkdirSync(path.join(this.root, 'user'));
    this.write('agent.yaml', script);
    this.run('keys', 'generate', '--owner', 'ada');
  }

  write(name, text) {
    const file = path.join(this.project, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
  }

  read(name) {
    return fs.readFileSync(path.join(this.project, name), 'utf8');
  }

  get options() {
    const env = { HOME: path.join(this.root, 'user'), PATH: '/usr/local/bin:/usr/bin:/bin', USER: 'ada' };
    return { cwd: this.project, env, encoding: 'utf8' };
  }

  /** Runs a command and returns its output; fails if it fails. */
  run(...args) {
    const result = this.try(...args);
    if (result.status !== 0) throw new Error(`rye ${args.join(' ')}: ${result.stderr}`);
    return result.stdout;
  }

  try(...args) {
    return spawnSync(RYE, args, { ...this.options, stdio: ['ignore', 'pipe', 'pipe'] });
  }

  /** Ends the background runs, which outlive their server, and removes the directories. */
  remove() {
    const environment = `HOME=${path.join(this.root, 'user')}\0`;
    const running = () => fs.readdirSync('/proc').filter((name) => {
      try {
        return /^\d+$/.test(name) && fs.readFileSync(`/proc/${name}/environ`, 'utf8').includes(environment);
      } catch {
        return false; // It has ended.
      }
    });
    const deadline = Date.now() + TIMEOUT;
    for (let found = running(); found.length; found = running()) {
      if (Date.now() > deadline) throw new Error(`processes ${found} do not end`);
      for (const id of found) try { process.kill(Number(id), 'SIGKILL'); } catch { /* It has ended. */ }
    }
    fs.rmSync(this.root, { recursive: true, force: true });
  }
}

/** A server process. */
export class Server {
  static async start(home, address = '127.0.0.1:0', options = ['--sandbox', 'local']) {
    const args = ['serve', '--addr', address, '--json', '--model', 'scripted:agent.yaml', ...options];
    const child = spawn(RYE, args, { ...home.options, stdio: ['ignore', 'pipe', 'inherit'] });
    const ready = await new Promise((resolve, reject) => {
      let text = '';
      child.stdout.on('data', (data) => {
        text += data;
        if (text.includes('\n')) resolve(JSON.parse(text));
      });
      child.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
    const server = new Server();
    Object.assign(server, { home, child, url: ready.url, login: ready.login, scripts: 0 });
    const created = home.run('token', 'create', '--name', 'test', '--scope', 'admin', '--json');
    server.token = JSON.parse(created).secret;
    return server;
  }

  get port() {
    return new URL(this.url).port;
  }

  async api(method, path, body) {
    const headers = { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' };
    const response = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  }

  /** Creates a session and returns its id. */
  async createSession(options = {}) {
    const reply = await this.api('POST', '/api/sessions', options);
    if (!reply.body.session) throw new Error(JSON.stringify(reply.body));
    return reply.body.session.id;
  }

  /** Creates a session whose model follows a script, and sends its first prompt. */
  async startSession(script, text, options = {}) {
    const name = `script-${++this.scripts}.yaml`;
    this.home.write(name, JSON.stringify(script));
    const session = await this.createSession({ model: `scripted:${name}`, ...options });
    return { session, item: await this.prompt(session, text) };
  }

  /** The first pending gate of a session, once there is one. */
  async gate(session) {
    for (let i = 0; i < 200; i++) {
      const { gates } = (await this.api('GET', `/api/gates?session=${session}`)).body;
      if (gates.length) return gates[0];
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`no gate in ${session}`);
  }

  /** Sends a prompt and returns its item. */
  async prompt(session, text) {
    const reply = await this.api('POST', `/api/sessions/${session}/threads/default/prompts`, { text });
    if (reply.status !== 202) throw new Error(JSON.stringify(reply.body));
    return reply.body.id;
  }

  /** The answer to a prompt, once it has ended. */
  async answer(item) {
    return (await this.api('GET', `/api/prompts/${item}?wait=30`)).body;
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.child.kill('SIGTERM');
    await ended;
  }
}

/** Opens the console in a browser context of its own. */
export function openAgain(browser, server, options = {}) {
  const login = server.home.run('token', 'login', '--url', server.url).trim();
  return openConsole(browser, { url: server.url, login }, options);
}

/** Opens the console, logged in. Fails the test if the page reports an error or calls another host. */
export async function openConsole(browser, server, { fromBinary = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // Failed requests are tested by what the page shows.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) page.problems.push(message.text());
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['data:', 'blob:'].includes(url.protocol) && url.host !== new URL(server.url).host) page.problems.push(`request to ${url.host}`);
  });
  if (process.env.RYE_CONSOLE_FILES && !fromBinary) await serveFromDisk(page, process.env.RYE_CONSOLE_FILES);
  await page.goto(server.login);
  await page.locator('nav[aria-label=Pages]').waitFor();
  return page;
}

/** While the console is being written: its files without building the server. */
async function serveFromDisk(page, folder) {
  await page.route(/\/console\//, async (route) => {
    const name = new URL(route.request().url()).pathname.replace('/console/', '');
    const response = await route.fetch().catch(() => null);
    const types = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
    route.fulfill({ headers: { ...response?.headers(), 'content-encoding': '', 'content-type': types[name.split('.').pop()] }, status: 200, body: fs.readFileSync(path.join(folder, name)) });
  });
}

/** Violations that axe-core finds on the page. */
export async function violations(page) {
  // Evaluated by the debugger, so the page's policy does not apply.
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return result.violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')}`);
}

/** Folder of the files of this test. */
export const here = path.dirname(fileURLToPath(import.meta.url));

// Exercises an agent with the official TypeScript SDK.
//
// Takes a plan as a JSON argument and prints a report as JSON: for each step its result or error,
// and what the agent sent meanwhile. ACP_SDK is the directory of the SDK.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.ACP_SDK}/`);
const acp = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);
const { client: requests } = acp.methods;

const plan = JSON.parse(process.argv[2]);
const [command, ...args] = plan.command;
let session = plan.session;
let agent;
let connection;
// The current step, and what was observed in it.
let step = {};
let seen;

// What the user answers: an option, or nothing at all.
function decide() {
  const answer = step.answers?.shift();
  if (answer === "leave") return new Promise(() => {});
  if (answer === undefined || answer === "cancel") return { outcome: { outcome: "cancelled" } };
  return { outcome: { outcome: "selected", optionId: answer } };
}

// Unsaved buffers of the editor, by path.
const buffers = new Map(Object.entries(plan.buffers ?? {}));

const client = acp
  .client({ name: "test" })
  .onNotification(requests.session.update, ({ params }) => {
    seen.updates.push(params.update);
    if (step.cancelOn === params.update.sessionUpdate) {
      step.cancelOn = undefined;
      connection.agent.notify(acp.methods.agent.session.cancel, { sessionId: session });
    }
    if (step.killOn === params.update.sessionUpdate) agent.kill("SIGKILL");
  })
  .onRequest(requests.session.requestPermission, ({ params }) => {
    seen.permissions.push(params);
    seen.onPermission?.();
    return decide();
  })
  .onRequest(requests.fs.readTextFile, ({ params }) => {
    seen.reads.push(params.path);
    return { content: buffers.get(params.path) ?? readFileSync(params.path, "utf8") };
  })
  .onRequest(requests.fs.writeTextFile, ({ params }) => {
    seen.writes.push(params.path);
    buffers.delete(params.path);
    writeFileSync(params.path, params.content);
    return {};
  })
  .onRequest(requests.elicitation.create, ({ params }) => {
    seen.forms.push(params);
    return step.form ?? { action: "cancel" };
  });

// The transport of a server: one message in each text message.
async function openSocket({ url, token }) {
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${token}` } });
  const readable = new ReadableStream({
    start(controller) {
      socket.addEventListener("message", ({ data }) => controller.enqueue(JSON.parse(data)));
      socket.addEventListener("close", () => controller.close());
    },
  });
  const writable = new WritableStream({
    write: (message) => socket.send(JSON.stringify(message)),
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", () => reject(new Error("the socket does not open")));
  });
  // As the process of an agent.
  const ended = new Promise((resolve) => socket.addEventListener("close", () => resolve([0])));
  return { stream: { readable, writable }, socket, ended };
}

let socket;

async function start() {
  if (plan.socket) {
    socket = await openSocket(plan.socket);
    connection = client.connect(socket.stream);
    return initialize();
  }
  agent = spawn(command, args, {
    cwd: plan.cwd,
    env: plan.env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  connection = client.connect(stream);
  return initialize();
}

function initialize() {
  return request("initialize", {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientInfo: { name: "test", version: "1.0.0" },
    clientCapabilities: plan.capabilities ?? {},
  });
}

async function stop(signal) {
  if (socket) {
    socket.socket.close();
    const [code] = await socket.ended;
    return code;
  }
  const ended = once(agent, "exit");
  if (signal) agent.kill(signal);
  else agent.stdin.end();
  const [code] = await ended;
  return code;
}

async function request(method, params) {
  try {
    return { result: await connection.agent.request(method, params) };
  } catch (error) {
    return { error: { code: error.code, message: error.message, data: error.data } };
  }
}

async function run() {
  if (step.restart) {
    await stop("SIGKILL");
    return start();
  }
  const params = { ...step.params };
  if (params.sessionId === "$session") params.sessionId = session;
  const asked = new Promise((resolve) => {
    seen.onPermission = resolve;
  });
  const outcome = await request(step.method, params);
  session = outcome.result?.sessionId ?? session;
  // A pending permission is asked after the response.
  if (step.awaitsPermission) await asked;
  return outcome;
}

const observe = () => ({ updates: [], permissions: [], reads: [], writes: [], forms: [] });
seen = observe();
const report = { initialize: await start(), steps: [] };
for (step of plan.steps) {
  const observed = observe();
  seen = observed;
  const outcome = await run();
  delete observed.onPermission;
  report.steps.push({ ...outcome, ...observed });
}
report.session = session;
report.exit = await stop();
process.stdout.write(JSON.stringify(report));
process.exit();

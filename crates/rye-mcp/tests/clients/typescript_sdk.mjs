// Exercises a server with the official TypeScript SDK.
//
// Takes a plan as a JSON argument and prints a report as JSON. MCP_SDK is the directory of the
// SDK.

import { existsSync, readFileSync, unlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.MCP_SDK}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema, ListRootsRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const plan = JSON.parse(process.argv[2]);
const [command, ...args] = plan.command ?? [];
const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url))
  : new StdioClientTransport({ command, args, env: plan.env, cwd: plan.cwd });

const user = { asked: [], answers: [] };
const capabilities = { elicitation: {}, roots: {} };
const client = new Client({ name: "test", version: "1.0.0" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, (request) => {
  user.asked.push(request.params.message);
  return user.answers.shift();
});
const root = { uri: pathToFileURL(plan.project).href };
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [root] }));

const call = (name, parameters, options) =>
  client.callTool({ name, arguments: parameters }, undefined, options);
const tool = (item_id, more) => ({ item_type: "tool", item_id, ...more });

const accept = (approve) => ({ action: "accept", content: { approve } });

async function sign() {
  user.answers = [accept(true)];
  return call("sign", tool("fresh"));
}

async function approval() {
  const ran = () => existsSync(`${plan.project}/approved`);
  user.asked = [];
  user.answers = [{ action: "decline" }, accept(false), accept(true)];
  return {
    declined: await call("execute", tool("careful")),
    unticked: await call("execute", tool("careful")),
    ran_unapproved: ran(),
    approved: await call("execute", tool("careful")),
    ran: ran(),
    asked: user.asked,
  };
}

// Cancels a running call; its process must end.
async function cancel() {
  const progress = [];
  const abort = new AbortController();
  const onprogress = ({ progress: done, message }) => {
    progress.push([done, message]);
    abort.abort("enough");
  };
  const slow = call("execute", tool("slow"), { signal: abort.signal, onprogress, timeout: 20_000 });
  const outcome = await slow.catch((error) => String(error));
  const pid = `${plan.project}/pid`;
  const process = `/proc/${readFileSync(pid, "utf8").trim()}`;
  for (let waited = 0; existsSync(process) && waited < 20_000; waited += 10) await pause(10);
  const gone = !existsSync(process);
  unlinkSync(pid);
  return { progress, gone, outcome, after: await call("help", {}) };
}

await client.connect(transport);
const report = {
  protocol: transport.protocolVersion ?? null,
  server: client.getServerVersion().name,
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  search: await call("search", { query: "greet" }),
  load: await call("load", tool("greet")),
  execute: await call("execute", tool("greet", { parameters: { name: "Ada" } })),
  fails: await call("execute", tool("fails")),
  unsigned: await call("execute", tool("fresh")),
  sign: await sign(),
  asked: user.asked,
  signed: await call("execute", tool("fresh")),
  help: await call("help", {}),
  wrong: await call("load", { item_type: "tool" }),
  approval: await approval(),
  cancel: await cancel(),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  resource: await client.readResource({ uri: "rye://knowledge/rye/items" }),
  prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  prompt: await client.getPrompt({ name: "tidy", arguments: { where: "here" } }),
};
await client.close();
console.log(JSON.stringify(report));

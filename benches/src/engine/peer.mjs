// The same turns, with one tool call each, with pi-agent-core in memory. For each line with a
// number of agents and of turns, runs them concurrently and prints the seconds.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const modules = join(process.argv.at(-1), "node_modules");
const load = (name) => import(pathToFileURL(join(modules, name, "dist/index.js")));
const { Agent } = await load("@mariozechner/pi-agent-core");
const { registerFauxProvider, fauxAssistantMessage, fauxToolCall } = await load("@mariozechner/pi-ai");

const tool = {
  name: "look",
  label: "look",
  description: "Looks.",
  parameters: { type: "object", properties: { at: { type: "string" } } },
  execute: async () => ({ content: [{ type: "text", text: "seen" }], details: {} }),
};

async function agent(turns) {
  const provider = registerFauxProvider();
  const responses = [];
  for (let turn = 0; turn < turns; turn++) {
    responses.push(fauxAssistantMessage(fauxToolCall("look", { at: "it" }), { stopReason: "toolUse" }));
    responses.push(fauxAssistantMessage("done"));
  }
  provider.setResponses(responses);
  const agent = new Agent({ initialState: { model: provider.getModel(), tools: [tool], systemPrompt: "" } });
  for (let turn = 0; turn < turns; turn++) await agent.prompt("look at it");
  if (provider.getPendingResponseCount() !== 0 || agent.state.messages.length !== 4 * turns) {
    throw new Error(`${agent.state.messages.length} messages`);
  }
  provider.unregister();
}

for await (const line of createInterface({ input: process.stdin })) {
  const [agents, turns] = line.split(" ").map(Number);
  const start = process.hrtime.bigint();
  await Promise.all(Array.from({ length: agents }, () => agent(turns)));
  console.log(Number(process.hrtime.bigint() - start) / 1e9);
}

// Reads the same stream with pi-ai. For each address on standard input, reads one answer and
// prints the CPU time in seconds.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const path = join(process.argv.at(-1), "node_modules/@mariozechner/pi-ai/dist/index.js");
const { stream } = await import(pathToFileURL(path));

for await (const address of createInterface({ input: process.stdin })) {
  const model = {
    id: "x", name: "x", api: "openai-completions", provider: "local", baseUrl: address,
    reasoning: false, input: ["text"], contextWindow: 1000000, maxTokens: 4000,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  };
  const context = { messages: [{ role: "user", content: "Continue.", timestamp: 0 }] };
  const before = process.cpuUsage();
  let words = 0;
  for await (const event of stream(model, context, { apiKey: "x" })) {
    if (event.type === "text_delta") words++;
    if (event.type === "error") throw new Error(JSON.stringify(event));
  }
  const { user, system } = process.cpuUsage(before);
  if (words < 1000) throw new Error(`${words} words`);
  console.log((user + system) / 1e6);
}

// Exercises the OpenAI-compatible endpoints with the official npm client, the Agents SDK and the
// AI SDK.
//
// Usage: openai_node.mjs URL TOKEN, with the directory of the packages in OPENAI_PACKAGES. The
// agent follows the script in `serve_clients.rs`.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const require = createRequire(`${process.env.OPENAI_PACKAGES}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));

const { default: OpenAI } = await load('openai');
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

// Carries out a scenario. `cargo xtask docs` lists them in docs/clients/README.md.
async function scenario(client, name, check) {
  try {
    await check();
  } catch (error) {
    console.error(`${client}: ${name}`);
    throw error;
  }
}

// The official client.
await scenario('openai-npm', 'responses are streamed and continued', async () => {
  const first = await client.responses.create({ model: 'rye', input: 'hi' });
  assert.equal(first.output_text, 'hello wörld');
  const stream = client.responses.stream({
    model: 'rye',
    input: 'more',
    previous_response_id: first.id,
  });
  let text = '';
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.equal(text, 'second');
  assert.equal((await stream.finalResponse()).output_text, 'second');
});
await scenario('openai-npm', 'chat completion is streamed', async () => {
  const runner = client.chat.completions.stream({
    model: 'rye',
    messages: [{ role: 'user', content: 'hi' }],
  });
  assert.equal(await runner.finalContent(), 'hello wörld');
});

// The Agents SDK, over both endpoints.
await scenario('openai-agents', 'agent runs and streams over both endpoints', async () => {
  const agents = await load('@openai/agents');
  agents.setTracingDisabled(true);
  for (const useResponses of [true, false]) {
    const modelProvider = new agents.OpenAIProvider({ openAIClient: client, useResponses });
    const agentRunner = new agents.Runner({ modelProvider, tracingDisabled: true });
    const agent = new agents.Agent({ name: 'Rye', model: 'rye', instructions: 'Be brief.' });
    const result = await agentRunner.run(agent, 'hi');
    assert.equal(result.finalOutput, 'hello wörld');
    const streamed = await agentRunner.run(agent, 'hi', { stream: true });
    let output = '';
    for await (const part of streamed.toTextStream()) output += part;
    assert.equal(output, 'hello wörld');
  }
});

// The AI SDK, over both endpoints.
await scenario('ai-sdk', 'text is generated and streamed over both endpoints', async () => {
  const ai = await load('ai');
  const { createOpenAI } = await load('@ai-sdk/openai');
  const provider = createOpenAI({ baseURL, apiKey });
  for (const model of [provider.responses('rye'), provider.chat('rye')]) {
    const result = await ai.generateText({ model, prompt: 'hi' });
    assert.equal(result.text, 'hello wörld');
    const messages = [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'hello wörld' },
      { role: 'user', content: 'more' },
    ];
    let output = '';
    for await (const part of ai.streamText({ model, messages }).textStream) output += part;
    assert.ok(output.length > 0);
  }
});

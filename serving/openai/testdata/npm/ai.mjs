// Vercel's AI SDK: the examples of its documentation, by its provider for servers like OpenAI's and
// by its provider for OpenAI, in chats and responses.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { call, done, fails, given, same } from "./check.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false; // they go where the result does

const dish = { recipe: { name: "Lasagna", ingredients: [{ name: "noodles", amount: "9 sheets" }], steps: ["Layer all.", "Bake it."] } };
const recipe = z.object({ recipe: z.object({ name: z.string(), ingredients: z.array(z.object({ name: z.string(), amount: z.string() })), steps: z.array(z.string()) }) });
const system = "You are a professional writer. You write simple, clear, and concise content.";

// Each provider makes a model of a server.
const providers = {
  compatible: (baseURL, apiKey = "none") => createOpenAICompatible({ name: "krait", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true })("tiny-mamba"),
  "compatible, without structured outputs": (baseURL, apiKey = "none") => createOpenAICompatible({ name: "krait", baseURL, apiKey })("tiny-mamba"),
  chat: (baseURL, apiKey = "none") => createOpenAI({ baseURL, apiKey }).chat("tiny-mamba"),
  responses: (baseURL, apiKey = "none") => createOpenAI({ baseURL, apiKey })("tiny-mamba"),
};

for (const [provider, of] of Object.entries(providers)) {
  const name = (what) => `${what}, ${provider}`;
  const model = of(given.api, given.key);
  const providerOptions = { openai: { store: false } }; // answers are not stored

  call(name("generateText"));
  const text = await generateText({ model, system, prompt: "Write a vegetarian lasagna recipe for 4 people.", temperature: 0, maxOutputTokens: 12 });
  same(name("how it ends"), [text.finishReason, text.text.length > 0, text.usage.outputTokens, text.warnings], ["length", true, 12, []]);

  call(name("streamText"));
  const stream = streamText({ model, system, prompt: "Write a vegetarian lasagna recipe for 4 people.", temperature: 0, maxOutputTokens: 12 });
  let joined = "";
  for await (const part of stream.textStream) joined += part;
  same(name("streamed"), [joined, await stream.finishReason], [text.text, "length"]);

  call(name("Output.object"));
  const made = await generateText({ model: of(given.recipe), output: Output.object({ schema: recipe }), prompt: "Generate a lasagna recipe." });
  same(name("the object"), made.output, dish);

  call(name("Output.object streamed"));
  let partial, count = 0;
  for await (partial of streamText({ model: of(given.recipe), output: Output.object({ schema: recipe }), prompt: "Generate a lasagna recipe." }).partialOutputStream) count++;
  same(name("the last object"), [partial, count > 3], [dish, true]);

  const ran = [];
  const tools = {
    get_weather: tool({
      description: "Get the weather in a location",
      inputSchema: z.object({ city: z.string().describe("The city to get the weather for"), days: z.number().int().optional() }),
      execute: async (args) => (ran.push(args), { ...args, temperature: 72 }),
    }),
    note: tool({ description: "Note something", inputSchema: z.object({ text: z.string(), done: z.boolean() }), strict: true, execute: async (args) => (ran.push(args), "fine") }),
  };
  const wanted = [{ city: "Rome", days: 2 }, { text: "a é", done: true }];

  call(name("tools"));
  const called = await generateText({ model: of(given.caller), tools, stopWhen: stepCountIs(2), providerOptions, prompt: "What is the weather in Rome?" });
  same(name("what was run"), ran, [...wanted, ...wanted]); // two steps, the second with the results of the first
  same(name("the last step"), [called.steps.length, called.text, called.finishReason, called.toolCalls.map((c) => c.input)], [2, "One moment.", "tool-calls", wanted]);
  if (provider.startsWith("compatible")) same(name("the thought"), called.reasoningText, "Let me see.");

  call(name("tools streamed"));
  ran.length = 0;
  const calling = streamText({ model: of(given.required), tools, toolChoice: "required", stopWhen: stepCountIs(2), providerOptions, prompt: "What is the weather in Rome?" });
  const deltas = {};
  for await (const part of calling.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "tool-input-delta") deltas[part.id] = (deltas[part.id] ?? "") + part.delta;
  }
  same(name("what was run of a stream"), ran, [...wanted, ...wanted]);
  same(name("streamed arguments"), Object.values(deltas).slice(0, 2).map((d) => JSON.parse(d)), wanted);

  const refused = (what, want, ask) => fails(name(what), (e) => [APICallError.isInstance(e), e.statusCode, JSON.parse(e.responseBody).error.param], [true, ...want], ask);
  await refused("a parameter that is wrong", [400, "temperature"], () => generateText({ model, prompt: "Hello", temperature: 9, maxRetries: 0 }));
  await refused("a model without tools", [400, "tools"], () => generateText({ model, tools, prompt: "Hello", maxRetries: 0 }));
  await refused("a wrong key", [401, null], () => generateText({ model: of(given.api, "wrong"), prompt: "Hello", maxRetries: 0 }));
  await fails(name("an aborted text"), (e) => e.name, "AbortError", () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 20);
    return generateText({ model, prompt: "Hello", maxOutputTokens: 100000, abortSignal: controller.signal });
  });

  call(name("a stream that is aborted"));
  const controller = new AbortController();
  for await (const part of streamText({ model, prompt: "Hello", maxOutputTokens: 100000, abortSignal: controller.signal }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") controller.abort();
  }
}

await fails("items that are stored", (e) => [e.statusCode, JSON.parse(e.responseBody).error.param], [400, "input[1].type"], () =>
  generateText({ model: providers.responses(given.caller), tools: { get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: () => "Sunny" }) }, stopWhen: stepCountIs(2), prompt: "Hello" }));

const compatible = createOpenAICompatible({ name: "krait", baseURL: given.api, apiKey: given.key });
call("completionModel");
const completed = await generateText({ model: compatible.completionModel("tiny-mamba"), prompt: given.prompt, temperature: 0, maxOutputTokens: 8 });
same("the completion", [completed.finishReason, completed.text.length > 0], ["length", true]);
await fails("embed", (e) => [e.statusCode, e.message.includes("mbeddings")], [501, true], () => embed({ model: compatible.embeddingModel("tiny-mamba"), value: "sunny day at the beach", maxRetries: 0 }));

done();

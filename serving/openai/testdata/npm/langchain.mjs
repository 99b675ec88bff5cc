// LangChain's client: the examples of its documentation, by chats and by responses.
import { AIMessageChunk, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";
import { call, done, fails, given, same } from "./check.mjs";

const dish = { recipe: { name: "Lasagna", ingredients: [{ name: "noodles", amount: "9 sheets" }], steps: ["Layer all.", "Bake it."] } };
const recipe = z.object({ recipe: z.object({ name: z.string(), ingredients: z.array(z.object({ name: z.string(), amount: z.string() })), steps: z.array(z.string()) }) });
const wanted = [["get_weather", { city: "Rome", days: 2 }], ["note", { text: "a é", done: true }]];
const to = (baseURL, apiKey = "none") => ({ apiKey, configuration: { baseURL }, maxRetries: 0 });

const getWeather = tool(async ({ city }) => `Sunny in ${city}`, { name: "get_weather", description: "Get the weather", schema: z.object({ city: z.string(), days: z.number().int().optional() }) });
const note = tool(async () => "fine", { name: "note", description: "Note something", schema: z.object({ text: z.string(), done: z.boolean() }) });

for (const useResponsesApi of [false, true]) {
  const name = (what) => `${what}, ${useResponsesApi ? "responses" : "chats"}`;
  const llm = new ChatOpenAI({ model: "tiny-mamba", temperature: 0, maxTokens: 12, useResponsesApi, ...to(given.api, given.key) });
  const messages = [["system", "You are a helpful assistant that translates English to French. Translate the user sentence."], ["human", "I love programming."]];

  call(name("invoke"));
  const said = await llm.invoke(messages);
  same(name("the answer"), [said.text.length > 0, said.usage_metadata.output_tokens], [true, 12]);

  call(name("stream"));
  let streamed;
  for await (const chunk of await llm.stream(messages)) streamed = streamed === undefined ? chunk : streamed.concat(chunk);
  same(name("the stream"), [streamed.text, streamed.usage_metadata.output_tokens], [said.text, 12]);

  call(name("a chain"));
  const chain = ChatPromptTemplate.fromMessages([["system", "Translate {from} to {to}."], ["human", "{input}"]]).pipe(llm);
  same(name("its answer"), (await chain.invoke({ from: "English", to: "German", input: "I love programming." })).text.length > 0, true);

  const caller = new ChatOpenAI({ model: "tiny-mamba", temperature: 0, useResponsesApi, ...to(given.caller) });
  const withTools = caller.bindTools([getWeather, note]);
  call(name("bindTools"));
  const asked = [new SystemMessage("Be brief."), new HumanMessage("What is the weather in Rome?")];
  const ai = await withTools.invoke(asked);
  same(name("calls"), ai.tool_calls.map((c) => [c.name, c.args]), wanted);

  call(name("results of tools"));
  const results = await Promise.all(ai.tool_calls.map((c) => (c.name === "note" ? note : getWeather).invoke(c)));
  same(name("they are messages"), results.every((r) => r instanceof ToolMessage), true);
  const again = await withTools.invoke([...asked, ai, ...results]);
  same(name("the next calls"), again.tool_calls.length, 2);

  call(name("bindTools streamed"));
  let all;
  for await (const chunk of await withTools.stream(asked)) all = all === undefined ? chunk : all.concat(chunk);
  same(name("they are joined"), [all instanceof AIMessageChunk, all.tool_calls.map((c) => [c.name, c.args])], [true, wanted]);

  call(name("bindTools, strict and required"));
  const required = new ChatOpenAI({ model: "tiny-mamba", temperature: 0, useResponsesApi, ...to(given.required) });
  const one = await required.bindTools([getWeather, note], { strict: true, tool_choice: "required" }).invoke(asked);
  same(name("strict calls"), one.tool_calls.map((c) => c.name), ["get_weather", "note"]);

  const cook = new ChatOpenAI({ model: "tiny-mamba", useResponsesApi, ...to(given.recipe) });
  call(name("withStructuredOutput"));
  same(name("what is parsed"), await cook.withStructuredOutput(recipe, { name: "recipe", method: "jsonSchema", strict: true }).invoke("Generate a lasagna recipe."), dish);
  same(name("with the raw message"), (await cook.withStructuredOutput(recipe, { method: "jsonSchema", includeRaw: true }).invoke("Generate a lasagna recipe.")).parsed, dish);
  call(name("withStructuredOutput, JSON mode"));
  same(name("what is parsed of JSON"), await cook.withStructuredOutput(recipe, { method: "jsonMode" }).invoke("Generate a lasagna recipe as JSON."), dish);

  const refused = (what, want, ask) => fails(name(what), (e) => [e.status, e.param ?? null], want, ask);
  await refused("a parameter that is wrong", [400, "temperature"], () => new ChatOpenAI({ model: "tiny-mamba", temperature: 9, useResponsesApi, ...to(given.api, given.key) }).invoke("Hello"));
  await refused("a model without tools", [400, "tools"], () => llm.bindTools([getWeather]).invoke("Hello"));
  await refused("a wrong key", [401, null], () => new ChatOpenAI({ model: "tiny-mamba", useResponsesApi, ...to(given.api, "wrong") }).invoke("Hello"));
  await fails(name("an aborted text"), (e) => /abort/i.test(`${e.name} ${e.message}`), true, () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 20);
    return new ChatOpenAI({ model: "tiny-mamba", maxTokens: 100000, useResponsesApi, ...to(given.api, given.key) }).invoke("Hello", { signal: controller.signal });
  });
}

const caller = new ChatOpenAI({ model: "tiny-mamba", ...to(given.required) });
call("withStructuredOutput, function calling");
same("arguments", await caller.withStructuredOutput(z.object({ city: z.string(), days: z.number().int() }), { name: "get_weather", method: "functionCalling" }).invoke("Rome?"), wanted[0][1]);

call("batch");
const llm = new ChatOpenAI({ model: "tiny-mamba", temperature: 0, maxTokens: 4, ...to(given.api, given.key) });
same("answers", (await llm.batch(["Hello", "And you?"])).map((m) => m.text.length > 0), [true, true]);

call("completions");
const completed = await new OpenAI({ model: "tiny-mamba", temperature: 0, maxTokens: 8, ...to(given.api, given.key) }).invoke(given.prompt);
same("the completion", completed.length > 0, true);
await fails("embeddings", (e) => [e.status, e.message.includes("mbeddings")], [501, true], () => new OpenAIEmbeddings({ model: "tiny-mamba", ...to(given.api, given.key) }).embedQuery("Hello"));

done();

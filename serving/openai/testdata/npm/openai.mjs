// OpenAI's own client: its calls, and the examples of its documentation.
import OpenAI, { APIUserAbortError, AuthenticationError, BadRequestError, InternalServerError, NotFoundError } from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { call, done, fails, given, same } from "./check.mjs";

const { api: baseURL, key: apiKey, prompt } = given;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

// refuses looks at an error's class, status, param and code.
const refuses = (name, kind, want, ask) =>
  fails(name, (e) => ({ is: e instanceof kind, status: e.status, param: e.param ?? undefined, code: e.code ?? undefined }), { is: true, ...want }, ask);

call("models.list");
const ids = [];
for await (const m of client.models.list()) ids.push(m.id);
same("models", ids, ["tiny-mamba"]);
const model = ids[0];

const base = { model, prompt, max_tokens: 24, temperature: 0.8, seed: 7 };
call("completions.create");
const whole = await client.completions.create(base);

call("completions.create stream");
let text = "", usage, finish;
for await (const part of await client.completions.create({ ...base, stream: true, stream_options: { include_usage: true } })) {
  for (const c of part.choices) {
    text += c.text;
    finish ??= c.finish_reason;
  }
  usage = part.usage ?? usage;
}
same("streamed text", text, whole.choices[0].text);
same("streamed finish", finish, whole.choices[0].finish_reason);
same("streamed usage", usage.completion_tokens, whole.usage.completion_tokens);

call("completions.create parameters");
const many = await client.completions.create({
  ...base, prompt: [prompt, "And"], n: 2, echo: true, stop: ["\n\n\n"], top_p: 0.9, presence_penalty: 0.5, frequency_penalty: 0.25,
  logit_bias: { 32: -1 }, user: "me", top_k: 40, min_p: 0.01, repetition_penalty: 1.1, ignore_eos: true,
});
same("choices", many.choices.map((c) => c.index), [0, 1, 2, 3]);
same("echo", many.choices.map((c) => c.text.startsWith(c.index < 2 ? prompt : "And")), [true, true, true, true]);

call("completions.create logprobs");
const probs = (await client.completions.create({ ...base, max_tokens: 3, logprobs: 2 })).choices[0].logprobs;
const echoed = (await client.completions.create({ ...base, max_tokens: 0, echo: true, logprobs: 2 })).choices[0];
same("echoed logprobs", [echoed.text, echoed.logprobs.token_logprobs[0], echoed.logprobs.token_logprobs.slice(1).every((p) => p <= 0), echoed.finish_reason], [base.prompt, null, true, "length"]);
same("logprobs", [probs.tokens.length, probs.token_logprobs.every((p) => p <= 0), probs.text_offset.length], [3, true, 3]);

const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: [{ type: "text", text: "Who was there?" }] }];
const talk = { model, messages, max_completion_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 3 };
call("chat.completions.create");
const said = (await client.chat.completions.create(talk)).choices[0];
same("role", said.message.role, "assistant");
same("top", said.logprobs.content.every((t) => t.top_logprobs.length === 3), true);

call("chat.completions.create stream");
let answer = "";
for await (const part of await client.chat.completions.create({ ...talk, stream: true })) answer += part.choices[0]?.delta?.content ?? "";
same("streamed answer", answer, said.message.content);

call("chat.completions.stream");
const runner = client.chat.completions.stream(talk);
same("the runner's answer", await runner.finalContent(), said.message.content);

call("chat.completions.create response_format");
const schema = { type: "object", properties: { who: { type: "string", maxLength: 9 }, there: { type: "boolean" } }, required: ["who", "there"], additionalProperties: false };
const held = await client.chat.completions.create({ ...talk, max_completion_tokens: 80, response_format: { type: "json_schema", json_schema: { name: "a", strict: true, schema } } });
same("the answer's fields", Object.entries(JSON.parse(held.choices[0].message.content)).map(([k, v]) => `${k}: ${typeof v}`), ["who: string", "there: boolean"]);

call("a stream that is left");
for await (const _ of await client.completions.create({ ...base, max_tokens: 100000, ignore_eos: true, stream: true })) break;

await refuses("a parameter that is wrong", BadRequestError, { status: 400, param: "temperature" }, () => client.completions.create({ ...base, temperature: -1 }));
await refuses("one that is not supported", BadRequestError, { status: 400, param: "tools" }, () =>
  client.chat.completions.create({ ...talk, tools: [{ type: "function", function: { name: "f" } }] }));
await refuses("a model that is not there", NotFoundError, { status: 404, param: "model", code: "model_not_found" }, () => client.models.retrieve("gpt-4o"));
await refuses("an address that is not built", InternalServerError, { status: 501, code: "not_implemented" }, () => client.embeddings.create({ model, input: "a" }));
await refuses("a wrong key", AuthenticationError, { status: 401, code: "invalid_api_key" }, () => new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list());

// A model that thinks, says something and calls two functions.
const caller = new OpenAI({ baseURL: given.caller, apiKey: "none", maxRetries: 0 });
const city = { type: "object", properties: { city: { type: "string", maxLength: 9 }, days: { type: "integer" } }, required: ["city"] };
const note = { type: "object", properties: { text: { type: "string" }, done: { type: "boolean" } }, required: ["text", "done"], additionalProperties: false };
const tools = [
  { type: "function", function: { name: "get_weather", parameters: city } },
  { type: "function", function: { name: "note", strict: true, parameters: note } },
];
const asked = { model: (await caller.models.list()).data[0].id, messages: [{ role: "user", content: "Rome?" }], temperature: 0, tools };
const wanted = [["get_weather", { city: "Rome", days: 2 }], ["note", { text: "a é", done: true }]];

call("chat.completions.create tools");
const calling = (await caller.chat.completions.create(asked)).choices[0];
same("calls", calling.message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), wanted);
same("the message", [calling.message.content, calling.message.reasoning_content, calling.finish_reason], ["One moment.", "Let me see.", "tool_calls"]);

call("chat.completions.stream tools");
const streamed = await caller.chat.completions.stream(asked).finalChatCompletion();
same("streamed calls", streamed.choices[0].message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), wanted);

call("chat.completions.runTools");
const ran = [];
const runs = caller.chat.completions.runTools({ ...asked, tools: tools.map((t) => ({ type: "function", function: { ...t.function, parse: JSON.parse, function: (args) => { ran.push([t.function.name, args]); return "fine"; } } })) }, { maxChatCompletions: 2 });
await runs.done().catch(() => {}); // the model calls them again and again
same("what was run", ran.slice(0, 2), wanted);

const flat = tools.map((t) => ({ type: "function", strict: false, ...t.function }));
call("responses.create");
const response = await caller.responses.create({ model: asked.model, input: "Rome?", temperature: 0, tools: flat });
same("items", response.output.map((o) => o.type), ["reasoning", "message", "function_call", "function_call"]);
same("the response", [response.output_text, response.status, JSON.parse(response.output[2].arguments)], ["One moment.", "completed", wanted[0][1]]);

call("responses.stream");
const events = caller.responses.stream({ model: asked.model, input: "Rome?", temperature: 0, tools: flat });
let spoken = "";
events.on("response.output_text.delta", (e) => (spoken += e.delta));
const final = await events.finalResponse();
same("the streamed response", [spoken, final.output[1].content[0].text, JSON.parse(final.output[3].arguments)], ["One moment.", "One moment.", wanted[1][1]]);


// The examples of structured output by zod.
const cook = new OpenAI({ baseURL: given.recipe, apiKey: "none", maxRetries: 0 });
const Recipe = z.object({ recipe: z.object({ name: z.string(), ingredients: z.array(z.object({ name: z.string(), amount: z.string() })), steps: z.array(z.string()) }) });
const order = [{ role: "system", content: "You write recipes." }, { role: "user", content: "Generate a lasagna recipe." }];
const dish = { recipe: { name: "Lasagna", ingredients: [{ name: "noodles", amount: "9 sheets" }], steps: ["Layer all.", "Bake it."] } };

call("chat.completions.parse");
const parsed = await cook.chat.completions.parse({ model: asked.model, messages: order, response_format: zodResponseFormat(Recipe, "recipe") });
same("what is parsed", parsed.choices[0].message.parsed, dish);

call("chat.completions.stream response_format");
const parts = cook.chat.completions.stream({ model: asked.model, messages: order, response_format: zodResponseFormat(Recipe, "recipe") });
let snapshots = 0;
parts.on("content.delta", (e) => (snapshots += e.parsed ? 1 : 0));
same("what is parsed of a stream", (await parts.finalChatCompletion()).choices[0].message.parsed, dish);
same("snapshots", snapshots > 3, true);

call("responses.parse");
const formed = await cook.responses.parse({ model: asked.model, input: order, text: { format: zodTextFormat(Recipe, "recipe") } });
same("what is parsed of a response", formed.output_parsed, dish);

call("zodFunction");
const typed = await caller.chat.completions.parse({ ...asked, tools: [zodFunction({ name: "get_weather", parameters: z.object({ city: z.string(), days: z.number().int() }) }), zodFunction({ name: "note", parameters: z.object({ text: z.string(), done: z.boolean() }) })] });
same("parsed arguments", typed.choices[0].message.tool_calls.map((c) => c.function.parsed_arguments), wanted.map((w) => w[1]));

call("a conversation with results");
const told = { role: "tool", content: "Sunny", tool_call_id: calling.message.tool_calls[0].id };
const next = (await caller.chat.completions.create({ ...asked, messages: [...asked.messages, calling.message, told, { ...told, tool_call_id: calling.message.tool_calls[1].id }] })).choices[0];
same("the next turn", next.finish_reason, "tool_calls");
const results = response.output.filter((o) => o.type === "function_call").map((o) => ({ type: "function_call_output", call_id: o.call_id, output: "Sunny" }));
same("the next response", (await caller.responses.create({ model: asked.model, input: [{ role: "user", content: "Rome?" }, ...response.output, ...results], tools: flat })).status, "completed");

call("an aborted stream");
const controller = new AbortController();
try {
  for await (const _ of await client.completions.create({ ...base, max_tokens: 100000, ignore_eos: true, stream: true }, { signal: controller.signal })) controller.abort();
} catch (e) {
  if (!(e instanceof APIUserAbortError)) throw e;
}

done({ text: whole.choices[0].text, tokens: whole.usage.completion_tokens });

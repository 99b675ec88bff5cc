// Runs the calls of OpenAI's own client that a server of Krait's answers, and says as one
// object of JSON what came back, for the test in Go to look at.
import OpenAI, { AuthenticationError, BadRequestError, NotFoundError } from "openai";

const [baseURL, apiKey, prompt] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const out = { calls: [] };
const call = (name) => out.calls.push(name);

function same(name, got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`${name}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

// refuses looks at an error's class, status, param and code.
async function refuses(name, kind, want, ask) {
  call(name);
  try {
    await ask();
  } catch (e) {
    if (!(e instanceof kind)) throw new Error(`${name}: ${e}`);
    same(name, { status: e.status, param: e.param ?? undefined, code: e.code ?? undefined }, want);
    return;
  }
  throw new Error(`${name}: it was taken`);
}

call("models.list");
const ids = [];
for await (const m of client.models.list()) ids.push(m.id);
same("models", ids, ["tiny-mamba"]);
const model = ids[0];

const base = { model, prompt, max_tokens: 24, temperature: 0.8, seed: 7 };
call("completions.create");
const whole = await client.completions.create(base);
out.text = whole.choices[0].text;
out.usage = whole.usage;

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
await refuses("one that nobody knows", BadRequestError, { status: 400, param: "temprature", code: "unknown_parameter" }, () => client.completions.create({ ...base, temprature: 1 }));
await refuses("an address that is not there", NotFoundError, { status: 404, code: "unknown_url" }, () => client.embeddings.create({ model, input: "a" }));
await refuses("a wrong key", AuthenticationError, { status: 401, code: "invalid_api_key" }, () => new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list());

console.log(JSON.stringify(out));

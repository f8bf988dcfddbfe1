// What a request may look like, with the official openai client: histories, prefill, ids, the small
// endpoints, and what is refused.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Server, speculative, user, within } from './server.mjs';

let server;
let client;
before(async () => {
  server = await Server.start(['--speculative-config', speculative(3)]);
  client = server.client;
});
after(() => server.stop());

const hello = { model: 'nano', messages: user('Hello') };
const ask = (request) => client.chat.completions.create(
  { model: 'nano', temperature: 0, max_tokens: 8, ...request });
const json = async (route, body) => (await server.post(route, body)).json();
const render = async (request) => (await json('/v1/chat/completions/render', request)).prompt;

test('tokens there and back', async () => {
  const text = 'def f(x):\n  return "é 你好"  \n';
  const { tokens, count, max_model_len: longest, token_strs: texts } = await json(
    '/tokenize', { model: 'nano', prompt: text, return_token_strs: true });
  assert.equal(tokens.length, count);
  assert.equal(texts.length, count);
  assert.equal(longest, 16384);
  assert.equal((await json('/detokenize', { model: 'nano', tokens })).prompt, text);
  const { count: counted } = await json('/tokenize', hello);
  assert.equal(counted, (await ask(hello)).usage.prompt_tokens);
});

test('render shows what is computed', async () => {
  const rendered = await json('/v1/chat/completions/render', { ...hello, max_tokens: 5, seed: 1 });
  assert.equal(rendered.prompt, '〈|EOS|〉<user>Hello</user>\n<assistant></think>');
  assert.equal(rendered.sampling_params.max_tokens, 5);
  const byIds = await client.completions.create(
    { model: 'nano', prompt: rendered.token_ids, temperature: 0, max_tokens: 8 });
  assert.equal(byIds.choices[0].text, (await ask(hello)).choices[0].message.content);
  const [completion] = await json('/v1/completions/render', { prompt: 'x' });
  assert.equal(completion.prompt, 'x');
});

test('every form of history is read', async () => {
  const call = (args) => ({
    id: 'a', type: 'function', function: { name: 'weather', arguments: args },
  });
  const histories = [
    { role: 'assistant' },
    { role: 'assistant', content: null },
    { role: 'assistant', content: [] },
    { role: 'assistant', content: [{ type: 'text', text: 'a' }, { type: 'refusal', refusal: 'b' }] },
    { role: 'assistant', content: '<think>hm</think>so' },
    { role: 'assistant', content: [{ type: 'thinking', thinking: 'hm' }] },
    { role: 'assistant', content: 'so', reasoning: 'hm' },
    { role: 'assistant', content: 'so', reasoning_content: 'hm' },
    { role: 'assistant', content: 'so', reasoning_details: [{ type: 'reasoning.text', text: 'hm' }] },
    { role: 'developer', content: 'a' },
    { role: 'system', content: 'a', name: 'b' },
    ...['{"city": "Paris"}', { city: 'Paris' }, '', null, '{"city": "P', '[1]', '5', '{"a":NaN}',
      '['.repeat(5000)].map((args) => (
      { role: 'assistant', content: null, tool_calls: [call(args)] })),
  ];
  await Promise.all(histories.map(async (message) => {
    const answer = await ask({
      messages: [...user('x'), message, { role: 'tool', tool_call_id: 'a', content: 'rain' },
        ...user('capital of France? one word')],
    });
    assert.equal(typeof answer.choices[0].message.content, 'string', JSON.stringify(message));
  }));
});

test('reasoning comes back the way it went out', async () => {
  const first = await ask({
    messages: user('What is 17 + 25?'), max_tokens: 200, reasoning_effort: 'high',
  });
  const { message, finish_reason: finish } = first.choices[0];
  assert.equal(finish, 'stop');
  assert.ok(message.reasoning.length > 0);
  const said = `<think>${message.reasoning}</think>${message.content}</assistant>`;
  for (const turn of [
    message,
    { role: 'assistant', content: message.content, reasoning: message.reasoning },
    { role: 'assistant', content: message.content, reasoning_content: message.reasoning_content },
    { role: 'assistant', content: `<think>${message.reasoning}</think>${message.content}` },
  ]) {
    const prompt = await render({
      messages: [...user('What is 17 + 25?'), turn, ...user('And then?')],
    });
    assert.ok(prompt.includes(said), prompt);
  }
  assert.ok(first.usage.completion_tokens_details.reasoning_tokens > 0);
  assert.equal(first.usage.prompt_tokens_details.cached_tokens >= 0, true);
});

test('prefill goes on where it ends', async () => {
  const messages = user('capital of France? one word');
  const prefilled = [...messages, { role: 'assistant', content: 'Par' }];
  const rest = { add_generation_prompt: false, continue_final_message: true };
  const answer = await ask({ messages: prefilled, ...rest });
  const prompt = await render({ messages: prefilled, ...rest });
  assert.ok(prompt.endsWith('</think>Par'));
  const completion = await client.completions.create(
    { model: 'nano', prompt, temperature: 0, max_tokens: 8 });
  assert.equal(answer.choices[0].message.content, completion.choices[0].text);
  const both = await ask({ messages: prefilled, continue_final_message: true })
    .catch((error) => error);
  assert.equal(both.status, 400);
  assert.match(both.error.message, /Cannot set both/);
});

test('request ids come back', async () => {
  const { data, response } = await client.chat.completions.create(
    { ...hello, max_tokens: 1 }, { headers: { 'X-Request-Id': 'agent-7' } }).withResponse();
  assert.equal(response.headers.get('x-request-id'), 'agent-7');
  assert.equal(data.id, 'chatcmpl-agent-7');
  const refused = await client.chat.completions.create({ ...hello, n: 0 }).catch((error) => error);
  assert.ok(refused.requestID.length > 8);
});

test('health, ping, version', async () => {
  const response = await fetch(`${server.url}/health`);
  assert.equal(response.status, 200);
  const health = await response.json();
  assert.deepEqual([health.status, health.phase, health.percent, health.running, health.waiting],
    ['ok', 'ready', 100, 0, 0]);
  assert.equal(typeof health.seconds_since_progress, 'number');
  assert.equal((await fetch(`${server.url}/ping`)).status, 200);
  assert.equal((await server.post('/ping', '')).status, 200);
  assert.match((await (await fetch(`${server.url}/version`)).json()).version, /^\d/);
});

test('continuous usage', async () => {
  let last = 0;
  for await (const chunk of await ask({
    messages: user('Tell me a story.'), stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  })) {
    assert.ok(chunk.usage.completion_tokens >= last);
    assert.ok(chunk.usage.prompt_tokens > 0);
    last = chunk.usage.completion_tokens;
  }
  assert.equal(last, 8);
});

test('unknown fields are accepted and named once in the log', async () => {
  await ask({ ...hello, made_up: 1, another: {} });
  assert.ok(await within(2, () => /not known and ignored: "made_up", "another"/
    .test(server.stderr)));
});

const image = [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }];
const refused = {
  'an image': [{ messages: user(image) }, 'messages.0.content.0', /Images are not supported/],
  'a required tool': [{ tools: [], tool_choice: 'required' }, 'tool_choice', /only "none" or "auto"/],
  'a JSON answer': [{ response_format: { type: 'json_object' } }, 'response_format',
    /not supported by this version/],
  'n of 0': [{ n: 0 }, 'n', /^n must be at least 1, got 0\./],
  'best_of above n': [{ n: 1, best_of: 2 }, 'best_of', /best_of/],
  'top_p of 0': [{ top_p: 0 }, 'top_p', /^top_p must be in \(0, 1\], got 0\./],
  'min_p above 1': [{ min_p: 1.5 }, 'min_p', /^min_p must be in \[0, 1\], got 1\.5\./],
  'a penalty of 3': [{ presence_penalty: 3 }, 'presence_penalty', /must be in \[-2, 2\], got 3\./],
  'no repetition penalty': [{ repetition_penalty: 0 }, 'repetition_penalty', /greater than zero/],
  'a token that is none': [{ logit_bias: { 99999999: 1 } }, 'logit_bias', /out of vocabulary/],
  'many logprobs': [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs',
    /Requested sample logprobs of 21, which is greater than max allowed: 20/],
  'top_logprobs alone': [{ top_logprobs: 2 }, 'top_logprobs', /must be set to true/],
  'min_tokens above max_tokens': [{ min_tokens: 9, max_tokens: 8 }, 'min_tokens',
    /less than or equal to max_tokens=8, got 9/],
};
for (const [name, [fields, param, message]] of Object.entries(refused)) {
  test(`refused: ${name}`, async () => {
    for (const stream of [false, true]) {
      const error = await ask({ ...hello, ...fields, stream }).then(
        () => assert.fail('was accepted'), (caught) => caught);
      assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
      assert.equal(error.param, param);
      assert.match(error.error.message, message);
    }
  });
}

test('limits of a body', async () => {
  const wide = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`k${i}`, i]));
  for (const [body, message] of [
    [{ ...hello, deep: JSON.parse('['.repeat(80) + ']'.repeat(80)) }, /nested more than 64 deep/],
    [{ ...hello, wide }, /more than 1024 keys/],
    [{ ...hello, n: 1000 }, /n must be at most 128/],
    [{ model: 'nano', messages: user('word '.repeat(1 << 20)) }, /maximum context length is 16384/],
  ]) {
    const response = await server.post('/v1/chat/completions', body);
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, message);
  }
  const { error } = await json('/v1/chat/completions', { ...hello, max_tokens: 16384 });
  assert.equal(error.reason, 'context_length_exceeded');
});

test('identical retries do not pile up', async () => {
  const request = { ...hello, ignore_eos: true, max_tokens: 16000, stream: true, n: 2 };
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const stream = await client.chat.completions.create(request);
    for await (const chunk of stream) {
      if (chunk.choices[0].delta.content) break; // the client goes away
    }
    assert.ok(await within(2, async () => {
      const { running, waiting } = await (await fetch(`${server.url}/health`)).json();
      return running === 0 && waiting === 0;
    }));
  }
});

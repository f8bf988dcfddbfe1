// The official openai client against the real program and the bundled pair.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server, speculative, user, within } from './server.mjs';

const kCapital = 'capital of France? one word';

// What a stream of chat chunks adds up to.
async function collect(stream) {
  const all = {
    role: '', content: '', reasoning: '', reasoning_content: '', finish: null, usage: null,
    chunks: 0, ids: new Set(),
  };
  for await (const chunk of stream) {
    all.chunks += 1;
    all.ids.add(chunk.id);
    if (chunk.usage) all.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    assert.equal(chunk.object, 'chat.completion.chunk');
    all.role += choice.delta.role ?? '';
    all.content += choice.delta.content ?? '';
    all.reasoning += choice.delta.reasoning ?? '';
    all.reasoning_content += choice.delta.reasoning_content ?? '';
    if (choice.finish_reason) all.finish = choice.finish_reason;
  }
  return all;
}

describe('a server with a draft', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start(['--speculative-config', speculative(6)]);
    client = server.client;
  });
  after(() => server.stop());

  test('metrics are there, at 0, before traffic', async () => {
    const metrics = await server.metrics();
    for (const name of ['vllm:prompt_tokens_total', 'vllm:generation_tokens_total',
      'vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:request_success_total',
      'vllm:spec_decode_num_drafts_total', 'vllm:spec_decode_num_draft_tokens_total',
      'vllm:spec_decode_num_accepted_tokens_total',
      'vllm:spec_decode_num_accepted_tokens_per_pos_total']) {
      assert.equal(metrics[name], 0, name);
    }
  });

  test('start-up lines', () => {
    assert.match(server.stdout, /^model: .*laguna-nano-nvfp4/m);
    assert.match(server.stdout, /^draft: .*laguna-nano-dflash-nvfp4, 6 of at most 15/m);
    assert.match(server.stdout, /^thinking: off unless a request asks/m);
    assert.match(server.stdout, /^sampling defaults: temperature 0\.7, top_p 0\.95, top_k 20/m);
    assert.match(server.stdout, /^context: 16384 tokens/m);
    assert.match(server.stdout, /^Application startup complete\.$/m);
  });

  test('models', async () => {
    const models = (await client.models.list()).data;
    assert.deepEqual(models.map((model) => model.id), ['nano', 'nano-alias']);
    assert.equal(models[0].max_model_len, 16384);
    assert.equal((await client.models.retrieve('nano')).id, 'nano');
    await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
  });

  test('chat: the capital of France', async () => {
    const answer = await client.chat.completions.create({
      model: 'nano', messages: user(kCapital), temperature: 0, max_tokens: 8,
    });
    assert.equal(answer.choices[0].message.content, 'Paris');
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.model, 'nano');
    assert.match(answer.id, /^chatcmpl-/);
    assert.equal(answer.usage.total_tokens,
      answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer.usage.prompt_tokens > 5);
    assert.ok(answer.usage.completion_tokens >= 2);
  });

  test('an alias and no model at all are accepted', async () => {
    const answer = await client.chat.completions.create({
      model: 'nano-alias', messages: user(kCapital), temperature: 0, max_tokens: 8,
    });
    assert.equal(answer.model, 'nano');
    const response = await server.post('/v1/chat/completions',
      { messages: user(kCapital), temperature: 0, max_tokens: 8 });
    assert.equal((await response.json()).choices[0].message.content, 'Paris');
  });

  test('a stream gives the same text as a whole answer', async () => {
    for (const prompt of [kCapital, 'Write a Python function that adds two numbers.']) {
      const request = {
        model: 'nano', messages: user(prompt), temperature: 0, max_tokens: 80,
      };
      const whole = await client.chat.completions.create(request);
      const streamed = await collect(await client.chat.completions.create(
        { ...request, stream: true, stream_options: { include_usage: true } }));
      assert.equal(streamed.content, whole.choices[0].message.content);
      assert.equal(streamed.finish, whole.choices[0].finish_reason);
      assert.equal(streamed.role, 'assistant');
      assert.equal(streamed.ids.size, 1);
      assert.deepEqual(streamed.usage, whole.usage);
    }
  });

  test('usage comes in a stream only where it is asked for', async () => {
    const streamed = await collect(await client.chat.completions.create(
      { model: 'nano', messages: user(kCapital), stream: true, max_tokens: 4 }));
    assert.equal(streamed.usage, null);
  });

  test("the client's own stream helper", async () => {
    const stream = client.chat.completions.stream(
      { model: 'nano', messages: user(kCapital), temperature: 0 });
    assert.equal((await stream.finalChatCompletion()).choices[0].message.content, 'Paris');
  });

  test('max_tokens ends with length', async () => {
    const answer = await client.chat.completions.create({
      model: 'nano', messages: user('Tell me a story.'), max_tokens: 3, temperature: 0,
    });
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.usage.completion_tokens, 3);
    const newer = await client.chat.completions.create({
      model: 'nano', messages: user('Tell me a story.'), max_completion_tokens: 3, temperature: 0,
    });
    assert.equal(newer.choices[0].message.content, answer.choices[0].message.content);
  });

  test('stop strings are cut out', async () => {
    const request = {
      model: 'nano', prompt: 'def parse_csv(path):', temperature: 0, max_tokens: 60,
    };
    const full = (await client.completions.create(request)).choices[0].text;
    const stop = full.slice(20, 25);
    const cut = await client.completions.create({ ...request, stop: ['never so', stop] });
    assert.equal(cut.choices[0].text, full.slice(0, full.indexOf(stop)));
    assert.equal(cut.choices[0].finish_reason, 'stop');
    assert.equal(cut.choices[0].stop_reason, stop);
    let streamed = '';
    for await (const chunk of await client.completions.create({ ...request, stop, stream: true })) {
      streamed += chunk.choices[0].text;
    }
    assert.equal(streamed, cut.choices[0].text);
  });

  test('completions: text and token ids', async () => {
    const request = { model: 'nano', temperature: 0, max_tokens: 12 };
    const text = await client.completions.create({ ...request, prompt: 'import os\n' });
    assert.match(text.id, /^cmpl-/);
    assert.equal(text.object, 'text_completion');
    assert.equal(text.choices[0].finish_reason, 'length');
    assert.equal(text.usage.completion_tokens, 12);
    const bos = await client.completions.create({ ...request, prompt: '〈|EOS|〉import os\n' });
    // The bundled tokenizer.json has no post-processor: nothing is put in front of a plain text.
    assert.equal(bos.usage.prompt_tokens, text.usage.prompt_tokens + 1);
    const ids = await client.completions.create({ ...request, prompt: [2, 100, 200] });
    assert.equal(ids.usage.prompt_tokens, 3);
    const one = await client.completions.create({ ...request, prompt: [[2, 100, 200]] });
    assert.equal(one.choices[0].text, ids.choices[0].text);
  });

  test('max_tokens of completions defaults to 16', async () => {
    const answer = await client.completions.create(
      { model: 'nano', prompt: 'def f():', ignore_eos: true });
    assert.equal(answer.usage.completion_tokens, 16);
  });

  test('a seed makes sampled text repeatable', async () => {
    const sample = async (seed) => (await client.chat.completions.create({
      model: 'nano', messages: user('Tell me a story.'), temperature: 1.2, seed, max_tokens: 24,
    })).choices[0].message.content;
    assert.equal(await sample(7), await sample(7));
    const different = new Set(await Promise.all([1, 2, 3, 4, 5].map(sample)));
    assert.ok(different.size > 1);
  });

  test('thinking comes as reasoning', async () => {
    const request = {
      model: 'nano', messages: user('What is 17 + 25?'), temperature: 0, max_tokens: 200,
      chat_template_kwargs: { enable_thinking: true },
    };
    const whole = await client.chat.completions.create(request);
    const { message } = whole.choices[0];
    assert.ok(message.reasoning.length > 0);
    assert.equal(message.reasoning_content, message.reasoning);
    assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 0);
    assert.doesNotMatch(message.content ?? '', /think>/);
    const streamed = await collect(
      await client.chat.completions.create({ ...request, stream: true }));
    assert.equal(streamed.reasoning, message.reasoning);
    assert.equal(streamed.reasoning_content, message.reasoning);
    assert.equal(streamed.content, message.content ?? '');
    const off = await client.chat.completions.create(
      { ...request, chat_template_kwargs: { enable_thinking: false } });
    assert.equal(off.choices[0].message.reasoning, undefined);
  });

  test('thinking that max_tokens ends leaves no content', async () => {
    const answer = await client.chat.completions.create({
      model: 'nano', messages: user('What is 17 + 25?'), temperature: 0, max_tokens: 2,
      chat_template_kwargs: { enable_thinking: true },
    });
    assert.equal(answer.choices[0].message.content, null);
    assert.ok(answer.choices[0].message.reasoning.length > 0);
    assert.equal(answer.choices[0].finish_reason, 'length');
  });

  test('a conversation with history, parts and a broken tool call', async () => {
    const answer = await client.chat.completions.create({
      model: 'nano',
      temperature: 0,
      max_tokens: 8,
      messages: [
        { role: 'developer', content: 'Be short.' },
        { role: 'user', content: [{ type: 'text', text: 'Weather?' }] },
        {
          role: 'assistant',
          content: null,
          reasoning: 'They ask for weather.',
          tool_calls: [
            { id: 'a', type: 'function', function: { name: 'weather', arguments: '{"city": "P' } },
            { id: 'b', type: 'function', function: { name: 'weather', arguments: '' } },
          ],
        },
        { role: 'tool', tool_call_id: 'a', content: 'rain' },
        { role: 'user', content: 'capital of France? one word' },
      ],
    });
    assert.equal(typeof answer.choices[0].message.content, 'string');
  });

  const hello = { model: 'nano', messages: user('Hello') };
  const refused = {
    'an unknown model': [{ ...hello, model: 'gpt' }, 404, 'NotFoundError', 'model'],
    'no messages': [{ model: 'nano' }, 400, 'Bad Request', 'messages'],
    'a temperature below 0': [{ ...hello, temperature: -1 }, 400, 'BadRequestError', 'temperature'],
    'a temperature that is text': [{ ...hello, temperature: 'hot' }, 400, 'Bad Request',
      'temperature'],
    'a JSON answer': [{ ...hello, response_format: { type: 'json_object' } }, 400,
      'BadRequestError', 'response_format'],
    'an image': [{
      model: 'nano',
      messages: user([{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }]),
    }, 400, 'BadRequestError', 'messages.0.content.0'],
    'too long an answer': [{ ...hello, max_tokens: 16384 }, 400, 'BadRequestError',
      'input_tokens'],
    'too long a prompt': [{ model: 'nano', messages: user('word '.repeat(20000)) }, 400,
      'BadRequestError', 'input_tokens'],
  };
  for (const [name, [request, status, type, param]] of Object.entries(refused)) {
    test(`refused: ${name}`, async () => {
      const failure = await client.chat.completions.create(request).then(
        () => assert.fail('was accepted'), (error) => error);
      assert.ok(failure instanceof (status === 404 ? OpenAI.NotFoundError
        : OpenAI.BadRequestError), `${failure}`);
      assert.equal(failure.status, status);
      assert.equal(failure.code, status);
      assert.equal(failure.type, type);
      assert.equal(failure.param, param);
      assert.ok(failure.error.message.length > 10);
    });
  }

  test('the overflow sentence is the one that clients read', async () => {
    const failure = await client.chat.completions.create(
      { ...hello, max_tokens: 16380 }).catch((error) => error);
    assert.match(failure.error.message, /maximum context length is 16384 tokens\. However, you requested 16380 output tokens and your prompt contains at least (\d+) input tokens, for a total of at least \d+ tokens\..*\(parameter=input_tokens, value=\1\)/);
  });

  test('malformed JSON', async () => {
    for (const body of ['', '{', 'null', '[]', '{"messages":[}', `{"a":${'['.repeat(100000)}`]) {
      const response = await server.post('/v1/chat/completions', body);
      assert.equal(response.status, 400);
      const { error } = await response.json();
      assert.equal(error.code, 400);
      assert.equal(error.type, 'Bad Request');
    }
  });

  test('paths and methods', async () => {
    assert.equal((await fetch(`${server.url}/nothing`)).status, 404);
    const wrong = await fetch(`${server.url}/v1/chat/completions`);
    assert.equal(wrong.status, 405);
    assert.equal(wrong.headers.get('allow'), 'POST, OPTIONS');
    assert.equal((await fetch(`${server.url}/health`)).status, 200);
    assert.match((await (await fetch(`${server.url}/version`)).json()).version, /^\d+\.\d+/);
  });

  test('many at once', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => (
      client.chat.completions.create(
        { model: 'nano', messages: user(kCapital), temperature: 0, max_tokens: 8 }))));
    for (const answer of answers) assert.equal(answer.choices[0].message.content, 'Paris');
  });

  test('metrics have moved', async () => {
    const metrics = await server.metrics();
    assert.ok(metrics['vllm:prompt_tokens_total'] > 100);
    assert.ok(metrics['vllm:generation_tokens_total'] > 100);
    assert.ok(metrics['vllm:request_success_total'] > 10);
    assert.ok(metrics['vllm:time_to_first_token_seconds_count'] > 10);
    const drafts = metrics['vllm:spec_decode_num_drafts_total'];
    const drafted = metrics['vllm:spec_decode_num_draft_tokens_total'];
    const accepted = metrics['vllm:spec_decode_num_accepted_tokens_total'];
    assert.ok(drafts > 0);
    assert.ok(drafted > 0 && drafted <= 6 * drafts);
    assert.ok(accepted > 0 && accepted <= drafted);
    assert.equal(metrics['vllm:spec_decode_num_accepted_tokens_per_pos_total'], accepted);
    assert.ok(metrics.http_requests_total > 10);
  });

  for (const stream of [true, false]) {
    test(`a client that leaves stops the work (${stream ? 'stream' : 'whole'})`, async () => {
      const aborted = new AbortController();
      const request = client.chat.completions.create(
        {
          model: 'nano', messages: user('Tell me a story.'), ignore_eos: true, temperature: 0,
          max_tokens: 16000, stream,
        },
        { signal: aborted.signal });
      if (stream) {
        let chunks = 0;
        for await (const chunk of await request) {
          assert.ok(chunk);
          chunks += 1;
          if (chunks === 5) break; // the client closes the connection
        }
      } else {
        request.catch(() => {});
        assert.ok(await within(5,
          async () => (await server.metrics())['vllm:num_requests_running'] === 1));
        aborted.abort();
      }
      assert.ok(await within(1,
        async () => (await server.metrics())['vllm:num_requests_running'] === 0));
      const before_ = (await server.metrics())['vllm:generation_tokens_total'];
      await new Promise((resolve) => { setTimeout(resolve, 300); });
      assert.equal((await server.metrics())['vllm:generation_tokens_total'], before_);
    });
  }

  test('the log has a line for each request and no prompt', () => {
    assert.match(server.stderr, /chatcmpl-\S+ POST \/v1\/chat\/completions 200 prompt \d+ tokens/);
    assert.match(server.stderr, /chatcmpl-\S+ POST \/v1\/chat\/completions 499 /);
    assert.doesNotMatch(server.stderr, /France|story/);
  });
});

test('speculation does not change the text', async () => {
  const requests = [
    { messages: user('Write a Python function that adds two numbers.'), temperature: 0 },
    { messages: user('Tell me a story.'), temperature: 0.8, seed: 11 },
    { messages: user('What is 17 + 25?'), temperature: 0,
      chat_template_kwargs: { enable_thinking: true } },
  ];
  const texts = [];
  for (const args of [[], ['--speculative-config', speculative(0)],
    ['--speculative-config', speculative(6)]]) {
    const server = await Server.start(args);
    try {
      const answers = [];
      for (const request of requests) {
        const answer = await server.client.chat.completions.create(
          { model: 'nano', max_tokens: 64, ...request });
        answers.push(JSON.stringify(answer.choices[0].message));
      }
      texts.push(answers);
    } finally {
      await server.stop();
    }
  }
  assert.deepEqual(texts[1], texts[0]);
  assert.deepEqual(texts[2], texts[0]);
});

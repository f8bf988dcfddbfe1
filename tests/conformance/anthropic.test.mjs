// /v1/messages with Anthropic's own client, on the bundled pair, which was trained to call tools.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { Server, required, speculative, user, within } from './server.mjs';

const tool = (name, description, properties) => ({
  name,
  description,
  input_schema: required(properties),
});
const weather = tool('get_weather', 'Get the weather of a city', { city: 'string' });
const add = tool('add', 'Add two numbers', { a: 'integer', b: 'integer' });
const thinking = { thinking: { type: 'enabled', budget_tokens: 1024 } };

// What differs from answer to answer.
const comparable = ({ id, parsed_output: parsed, content, ...message }) => ({
  ...message, content: content.map(({ id: own, ...block }) => block),
});

describe('messages', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start(['--speculative-config', speculative(6)]);
    client = new Anthropic({ baseURL: server.url, apiKey: 'any', maxRetries: 0 });
  });
  after(() => server.stop());

  const ask = (request) => client.messages.create(
    { model: 'claude-any', temperature: 0, max_tokens: 200, ...request });
  const stream = (request) => client.messages.stream(
    { model: 'claude-any', temperature: 0, max_tokens: 200, ...request });

  test('the capital of France', async () => {
    const message = await ask({ messages: user('capital of France? one word'), max_tokens: 8 });
    assert.deepEqual(message.content, [{ type: 'text', text: 'Paris' }]);
    assert.equal(message.role, 'assistant');
    assert.equal(message.id, `msg_${message._request_id}`);
    assert.equal(message.model, 'claude-any');
    assert.equal(message.stop_reason, 'end_turn');
    assert.ok(message.usage.input_tokens > 5 && message.usage.output_tokens >= 2);
  });

  const questions = {
    text: { messages: user('Write a Python function that adds two numbers.') },
    'a system prompt in blocks': {
      system: [{ type: 'text', text: 'You are a coding assistant.', cache_control: { type: 'ephemeral' } }],
      messages: user('Hello'),
    },
    thinking: { messages: user('What is 17 + 25? Only the number.'), ...thinking },
    'a call': { messages: user('What is the weather in Paris?'), tools: [weather, add] },
    'a call after thinking': {
      messages: user('What is the weather in Paris?'), tools: [weather], ...thinking,
    },
    'a limit': { messages: user('Tell me a story.'), max_tokens: 3 },
    'a limit in a call': {
      messages: user('What is the weather in Paris?'), tools: [weather], max_tokens: 12,
    },
  };
  for (const [name, request] of Object.entries(questions)) {
    test(`a stream gives the whole answer: ${name}`, async () => {
      const whole = await ask(request);
      const kinds = [];
      const streamed = stream(request);
      streamed.on('streamEvent', (event) => {
        if (event.type !== kinds.at(-1)) kinds.push(event.type);
      });
      const final = await streamed.finalMessage();
      assert.deepEqual(comparable(final), comparable(whole));
      assert.equal(kinds[0], 'message_start');
      assert.deepEqual(kinds.slice(-2), ['message_delta', 'message_stop']);
      if (request.thinking) {
        assert.equal(whole.content[0].type, 'thinking');
        assert.ok(whole.content[0].thinking.length > 0 && whole.content[0].signature.length > 0);
      }
    });
  }

  test('calls have their input', async () => {
    const message = await ask(questions['a call']);
    assert.equal(message.stop_reason, 'tool_use');
    assert.equal(message.content.length, 1);
    const [call] = message.content;
    assert.equal(call.type, 'tool_use');
    assert.match(call.id, /^toolu_/);
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(call.input, { city: 'Paris' });
    assert.equal((await ask(questions['a limit in a call'])).stop_reason, 'max_tokens');
    const none = await ask({ ...questions['a call'], tool_choice: { type: 'none' } });
    assert.equal(none.stop_reason, 'end_turn');
  });

  test('an answer follows the result, as text and as parts, with thinking and without', async () => {
    for (const more of [{}, thinking]) {
      const first = await ask({ ...questions['a call'], ...more });
      const call = first.content.at(-1);
      for (const content of ['{"temperature": 21}', [{ type: 'text', text: '{"temperature": 21}' }]]) {
        const message = await ask({
          tools: [weather, add],
          messages: [...questions['a call'].messages,
            { role: 'assistant', content: first.content },
            { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content }] }],
        });
        assert.equal(message.content.at(-1).text, 'It is 21 degrees in Paris.');
      }
    }
  });

  test("the client's tool runner, which goes on without the thread that it asks for", async () => {
    const asked = [];
    const runner = client.beta.messages.toolRunner({
      model: 'claude-any', max_tokens: 100, temperature: 0,
      messages: user('What is the weather in Paris?'),
      tools: [{
        ...weather,
        parse: (input) => input,
        run: (input) => { asked.push(input); return '{"temperature": 21}'; },
      }],
    });
    const message = await runner;
    assert.equal(message.content[0].text, 'It is 21 degrees in Paris.');
    assert.deepEqual(asked, [{ city: 'Paris' }]);
  });

  test('stop sequences', async () => {
    const full = (await ask(questions.text)).content[0].text;
    const stop = full.slice(20, 25);
    const request = { ...questions.text, stop_sequences: ['never so', stop] };
    for (const message of [await ask(request), await stream(request).finalMessage()]) {
      assert.equal(message.content[0].text, full.slice(0, full.indexOf(stop)));
      assert.equal(message.stop_reason, 'stop_sequence');
      assert.equal(message.stop_sequence, stop);
    }
  });

  test('tokens are counted as the prompt has them', async () => {
    const { messages, tools } = questions['a call'];
    const request = { model: 'claude-any', system: 'Be short.', messages, tools };
    const counted = await client.messages.countTokens(request);
    const message = await ask({ ...request, max_tokens: 1 });
    assert.equal(counted.input_tokens, message.usage.input_tokens);
    assert.equal((await client.beta.messages.countTokens(request)).input_tokens,
      counted.input_tokens);
  });

  test('a limit beyond the context is the rest of it; a prompt beyond it is refused', async () => {
    // The client wants so many tokens to be streamed.
    const message = await stream(
      { messages: user('capital of France? one word'), max_tokens: 32000 }).finalMessage();
    assert.equal(message.content[0].text, 'Paris');
    const long = { messages: user('word '.repeat(20000)) };
    for (const failure of [await ask(long).catch((error) => error),
      await stream(long).finalMessage().catch((error) => error)]) {
      assert.ok(failure instanceof Anthropic.BadRequestError);
      assert.equal(failure.error.error.type, 'invalid_request_error');
      assert.match(failure.message, /prompt is too long: \d+ tokens > 16383 maximum/);
    }
  });

  test('what cannot be read is named', async () => {
    for (const [request, message] of [
      [{ messages: [] }, /messages: /],
      [{ messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] },
        /messages\.0\.content\.0: images are not supported/],
      [{ messages: [{ role: 'user', content: [{ type: 'tool_result' }] }] }, /tool_use_id/],
      [{ messages: user('x'), tools: [{ type: 'bash_20250124', name: 'bash' }] }, /bash_20250124/],
      [{ messages: user('x'), tools: [weather], tool_choice: { type: 'any' } }, /tool_choice/],
    ]) {
      const failure = await ask(request).catch((error) => error);
      assert.ok(failure instanceof Anthropic.BadRequestError, String(failure));
      assert.match(failure.message, message);
    }
    const broken = await server.post('/v1/messages', '{"messages": [');
    assert.equal(broken.status, 400);
    assert.equal((await broken.json()).type, 'error');
  });

  test('who leaves stops the work: while it computes, while it waits', async () => {
    const story = { messages: user('Tell me a story.'), max_tokens: 16000, ignore_eos: true };
    for (const streamed of [true, false]) {
      const leave = new AbortController();
      const left = Array.from({ length: 6 }, () => client.messages.create(
        { model: 'x', stream: streamed, ...story }, { signal: leave.signal })
        .then(async (answer) => { for await (const event of answer) assert.ok(event.type); })
        .catch(() => {}));
      assert.ok(await within(10, async () => (await server.metrics())['vllm:num_requests_waiting'] >= 2));
      leave.abort();
      await Promise.all(left);
      assert.ok(await within(2, async () => {
        const metrics = await server.metrics();
        return metrics['vllm:num_requests_running'] + metrics['vllm:num_requests_waiting'] === 0;
      }));
    }
  });

  test('requests are counted, have ids, and may come from other origins', async () => {
    const response = await fetch(`${server.url}/v1/messages?beta=true`, {
      method: 'POST',
      headers: { 'x-request-id': 'mine', origin: 'https://a.example', 'anthropic-beta': 'what-ever-1' },
      body: JSON.stringify({ max_tokens: 2, messages: user('Hello') }),
    });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('x-request-id'), 'mine');
    assert.equal(response.headers.get('access-control-allow-origin'), '*');
    assert.equal((await response.json()).id, 'msg_mine');
    const text = await (await fetch(`${server.url}/metrics`)).text();
    const counted = /http_requests_total\{handler="\/v1\/messages",method="POST",status="2xx"\} (\d+)/
      .exec(text);
    assert.ok(Number(counted[1]) > 10);
    assert.match(text, /handler="\/v1\/messages\/count_tokens"/);
  });
});

test('keys, strict names, no signatures', async () => {
  const server = await Server.start(['--api-key', 'secret', '--strict-model-name',
    '--no-thinking-signatures', '--speculative-config', speculative(6)]);
  try {
    const request = { model: 'nano', max_tokens: 60, temperature: 0, messages: user('What is 1 + 2?'), ...thinking };
    for (const key of [{ apiKey: 'secret' }, { apiKey: null, authToken: 'secret' }]) {
      const client = new Anthropic({ baseURL: server.url, maxRetries: 0, ...key });
      const message = await client.messages.create(request);
      assert.equal(message.content[0].type, 'thinking');
      assert.equal(message.content[0].signature, '');
      await assert.rejects(client.messages.create({ ...request, model: 'claude-any' }),
        Anthropic.NotFoundError);
    }
    const stranger = new Anthropic({ baseURL: server.url, maxRetries: 0, apiKey: 'wrong' });
    const failure = await stranger.messages.create(request).catch((error) => error);
    assert.ok(failure instanceof Anthropic.AuthenticationError);
    assert.equal(failure.error.error.type, 'authentication_error');
  } finally {
    await server.stop();
  }
});

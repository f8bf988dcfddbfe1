// /v1/responses with the openai client, on the bundled pair, which was trained to call tools.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { Server, required, speculative, user, within } from './server.mjs';

const tool = (name, description, properties) => ({
  type: 'function',
  name,
  description,
  strict: false,
  parameters: required(properties),
});
const weather = tool('get_weather', 'Get the weather of a city', { city: 'string' });
const add = tool('add', 'Add two numbers', { a: 'integer', b: 'integer' });

// What differs from answer to answer.
const comparable = ({ id, created_at, output, ...rest }) => ({
  ...rest, output: output.map(({ id: own, call_id, parsed_arguments, ...item }) => item),
});

describe('responses', () => {
  let server;
  let client;
  before(async () => {
    server = await Server.start(['--speculative-config', speculative(6)]);
    client = server.client;
  });
  after(() => server.stop());

  const ask = (request) => client.responses.create(
    { model: 'nano', temperature: 0, max_output_tokens: 200, ...request });

  test('the capital of France', async () => {
    const response = await ask({ input: 'capital of France? one word' });
    assert.equal(response.output_text, 'Paris');
    assert.equal(response.status, 'completed');
    assert.equal(response.object, 'response');
    assert.match(response.id, /^resp_/);
    assert.equal(response.usage.total_tokens,
      response.usage.input_tokens + response.usage.output_tokens);
    const items = await ask({
      instructions: 'You are a coding assistant.', input: user('What is 17 + 25? Only the number.'),
    });
    assert.equal(items.output_text, '42');
  });

  const questions = {
    text: { input: 'Write a Python function that adds two numbers.' },
    reasoning: { input: 'What is 17 + 25? Only the number.', reasoning: { effort: 'high' } },
    'a call': { input: 'What is the weather in Paris?', tools: [weather, add] },
    'a call after reasoning': {
      input: 'What is the weather in Paris?', tools: [weather], reasoning: { effort: 'low' },
    },
    'a limit': { input: 'Tell me a story.', max_output_tokens: 3 },
    'a limit in a call': {
      input: 'What is the weather in Paris?', tools: [weather], max_output_tokens: 12,
    },
  };
  for (const [name, request] of Object.entries(questions)) {
    test(`a stream gives the whole answer: ${name}`, async () => {
      const whole = await ask(request);
      const seen = [];
      const done = [];
      const stream = client.responses.stream(
        { model: 'nano', temperature: 0, max_output_tokens: 200, ...request });
      let last = null;
      for await (const event of stream) {
        assert.equal(event.sequence_number, seen.length);
        seen.push(event.type);
        if (event.type === 'response.output_item.done') done.push(event.item);
        last = event;
      }
      assert.deepEqual(seen.slice(0, 2), ['response.created', 'response.in_progress']);
      assert.equal(last.type, 'response.completed');
      const { output_text: text, ...rest } = whole;
      assert.deepEqual(comparable(last.response), comparable(rest));
      assert.equal((await stream.finalResponse()).output_text, text);
      // What is done carries the result, but for a call that was cut off: nobody is to run it.
      assert.deepEqual(done, last.response.output.filter(
        (item) => item.type === 'message' || item.status === 'completed'));
      assert.equal(whole.status, name.startsWith('a limit') ? 'incomplete' : 'completed');
      if (request.reasoning) {
        assert.equal(whole.output[0].type, 'reasoning');
        assert.ok(whole.output[0].content[0].text.length > 0);
        assert.ok(whole.usage.output_tokens_details.reasoning_tokens > 0);
      }
    });
  }

  test('the answer to a call goes on, by its id and by its items', async () => {
    const request = questions['a call after reasoning'];
    const first = await ask({ ...request, include: ['reasoning.encrypted_content'] });
    const call = first.output.at(-1);
    assert.equal(call.type, 'function_call');
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(JSON.parse(call.arguments), { city: 'Paris' });
    const result = {
      type: 'function_call_output', call_id: call.call_id, output: '{"temperature": 21}',
    };
    const byId = await ask(
      { previous_response_id: first.id, input: [result], tools: [weather] });
    assert.equal(byId.output_text, 'It is 21 degrees in Paris.');
    assert.equal(byId.previous_response_id, first.id);
    const byItems = await ask({
      store: false,
      tools: [weather],
      input: [{ role: 'user', content: request.input }, ...first.output, result],
    });
    assert.equal(byItems.output_text, byId.output_text);
    assert.equal(byItems.usage.input_tokens, byId.usage.input_tokens);
    await assert.rejects(client.responses.retrieve(byItems.id), OpenAI.NotFoundError);
  });

  test('answers are kept, and can be deleted', async () => {
    const response = await ask({ input: 'Hi, I am Alice' });
    const { output_text: text, ...kept } = await client.responses.retrieve(response.id);
    assert.equal(text, response.output_text);
    assert.deepEqual(comparable(kept), comparable((({ output_text, ...rest }) => rest)(response)));
    const next = await ask({ previous_response_id: response.id, input: 'What is my name?' });
    assert.equal(next.output_text, 'Your name is Alice.');
    await client.responses.delete(response.id);
    await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
    const lost = await ask({ previous_response_id: response.id, input: 'x' })
      .catch((error) => error);
    assert.equal(lost.status, 404);
    assert.equal(lost.param, 'previous_response_id');
  });

  test('tools that are no functions', async () => {
    const spaced = await ask({
      input: 'What is the weather in Paris?',
      tools: [{ type: 'namespace', name: 'mcp__weather', description: 'Weather', tools: [weather] },
        { type: 'custom', name: 'apply_patch', description: 'Patch a file' },
        { type: 'local_shell' }],
    });
    // The pair knows its tools by their names alone, and leaves the namespace out.
    const [call] = spaced.output;
    assert.equal(call.type, 'function_call');
    assert.equal(call.namespace, 'mcp__weather');
    assert.equal(call.name, 'get_weather');
    const custom = await ask({
      input: 'Run `git status`', tools: [{ type: 'custom', name: 'run_command', description: 'Run' }],
    });
    assert.equal(custom.output[0].type, 'custom_tool_call');
    assert.match(custom.output[0].input, /git status/);
    for (const type of ['web_search', 'web_search_preview', 'image_generation', 'shell']) {
      const failure = await ask({ input: 'x', tools: [{ type }] }).catch((error) => error);
      assert.equal(failure.status, 400);
      assert.match(failure.message, new RegExp(`tools\\.0\\.type: tools of type "?${type}"? are not`));
    }
  });

  test('what cannot be done is refused by name', async () => {
    for (const [request, param] of [
      [{ input: 'x', background: true }, 'background'],
      [{ input: 'x', truncation: 'auto' }, 'truncation'],
      [{ input: 'x', prompt: { id: 'p' } }, 'prompt'],
      [{ input: 'x', tools: [weather], tool_choice: 'required' }, 'tool_choice'],
      [{ input: 'x', max_output_tokens: 0 }, 'max_output_tokens'],
      [{ input: [{ type: 'item_reference', id: 'x' }] }, 'input.0.type'],
      [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] },
        'input.0.content.0'],
      [{ input: [{ type: 'function_call_output', output: 'x' }] }, 'input.0.id'],
      [{ input: 7 }, 'input'],
      [{}, 'input'],
    ]) {
      const failure = await ask(request).catch((error) => error);
      assert.ok(failure instanceof OpenAI.BadRequestError, String(failure));
      assert.equal(failure.param, param);
    }
    assert.equal((await server.post('/v1/responses', '{"input": ')).status, 400);
    await assert.rejects(ask({ model: 'other', input: 'x' }), OpenAI.NotFoundError);
  });

  test('a prompt that is too long: a 400, and of a stream its last event', async () => {
    const request = { input: 'word '.repeat(20000), max_output_tokens: null };
    const failure = await ask(request).catch((error) => error);
    assert.equal(failure.status, 400);
    assert.match(failure.message, /maximum context length is 16384 tokens/);
    assert.equal(failure.error.reason, 'context_length_exceeded');
    const events = [];
    for await (const event of await ask({ ...request, stream: true })) events.push(event);
    assert.deepEqual(events.map((event) => event.type),
      ['response.created', 'response.in_progress', 'response.failed']);
    assert.equal(events.at(-1).response.status, 'failed');
    assert.equal(events.at(-1).response.error.code, 'context_length_exceeded');
  });

  test('who leaves stops the work: while it computes, while it waits', async () => {
    const story = { input: 'Tell me a story.', max_output_tokens: 16000, ignore_eos: true };
    for (const stream of [true, false]) {
      const leave = new AbortController();
      const left = Array.from({ length: 6 }, () => client.responses.create(
        { model: 'nano', stream, ...story }, { signal: leave.signal })
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
    const text = await (await fetch(`${server.url}/metrics`)).text();
    assert.match(text, /http_requests_total\{handler="\/v1\/responses",method="POST",status="2xx"\} [1-9]/);
  });
});

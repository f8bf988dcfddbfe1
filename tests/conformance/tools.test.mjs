// Tool calls with the official openai client: the bundled pair was trained to make them.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, speculative, user } from './server.mjs';

function tool(name, description, properties) {
  return {
    type: 'function',
    function: {
      name,
      description,
      parameters: {
        type: 'object',
        properties: Object.fromEntries(
          Object.entries(properties).map(([key, type]) => [key, { type }])),
        required: Object.keys(properties),
      },
    },
  };
}

const weather = tool('get_weather', 'Get the weather of a city', { city: 'string' });
const add = tool('add', 'Add two numbers', { a: 'integer', b: 'integer' });
const write = tool('write_file', 'Write a file', { path: 'string', content: 'string' });
const thinking = { chat_template_kwargs: { enable_thinking: true } };

const questions = {
  'a string': [{ messages: user('What is the weather in Paris?'), tools: [weather, add] },
    'get_weather', { city: 'Paris' }],
  integers: [{ messages: user('What is 17 + 25?'), tools: [add] }, 'add', { a: 17, b: 25 }],
  'a file': [{ messages: user('Write a program that prints alice to main.py'), tools: [write] },
    'write_file', { path: 'main.py', content: 'print("alice")\n' }],
  'a call after reasoning': [
    { messages: user('What is the weather in Paris?'), tools: [weather], ...thinking },
    'get_weather', { city: 'Paris' }],
};

for (const proposals of [0, 6]) {
  describe(`tool calls, ${proposals} proposals a step`, () => {
    let server;
    let client;
    before(async () => {
      server = await Server.start(['--speculative-config', speculative(proposals)]);
      client = server.client;
    });
    after(() => server.stop());

    const ask = (request) => client.chat.completions.create(
      { model: 'nano', temperature: 0, max_tokens: 200, ...request });

    for (const [name, [request, called, args]] of Object.entries(questions)) {
      test(name, async () => {
        const [choice] = (await ask(request)).choices;
        assert.equal(choice.finish_reason, 'tool_calls');
        assert.equal(choice.message.content, null);
        assert.equal(choice.message.tool_calls.length, 1);
        const [call] = choice.message.tool_calls;
        assert.equal(call.type, 'function');
        assert.ok(call.id.length > 8);
        assert.equal(call.function.name, called);
        assert.deepEqual(JSON.parse(call.function.arguments), args);
        assert.equal(choice.message.reasoning !== undefined,
          request.chat_template_kwargs !== undefined);
        assert.equal(choice.message.reasoning_content, choice.message.reasoning);
      });

      test(`${name}, streamed`, async () => {
        const whole = (await ask(request)).choices[0].message;
        const pieces = [];
        let id = null;
        let reasoning = '';
        let finish = null;
        for await (const chunk of await ask({ ...request, stream: true })) {
          const [choice] = chunk.choices;
          finish = choice.finish_reason ?? finish;
          reasoning += choice.delta.reasoning ?? '';
          assert.ok(!choice.delta.content);
          for (const piece of choice.delta.tool_calls ?? []) {
            assert.equal(piece.index, 0);
            if (id === null) {
              assert.equal(piece.type, 'function');
              assert.equal(piece.function.name, called);
              id = piece.id;
            } else {
              assert.equal(piece.id, undefined);
              assert.equal(piece.function.name, undefined);
            }
            pieces.push(piece.function.arguments);
          }
        }
        assert.ok(id.length > 8);
        assert.ok(pieces.length > 2, 'arguments come in pieces');
        assert.equal(pieces.join(''), whole.tool_calls[0].function.arguments);
        assert.equal(reasoning, whole.reasoning ?? '');
        assert.equal(finish, 'tool_calls');
      });
    }

    test("the client's stream helper", async () => {
      const [request, called, args] = questions['a file'];
      const done = [];
      const stream = client.chat.completions.stream(
        { model: 'nano', temperature: 0, max_tokens: 200, ...request });
      stream.on('tool_calls.function.arguments.done', (event) => done.push(event));
      const [choice] = (await stream.finalChatCompletion()).choices;
      assert.equal(choice.finish_reason, 'tool_calls');
      assert.equal(choice.message.tool_calls[0].function.name, called);
      assert.deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), args);
      assert.equal(done.length, 1);
    });

    for (const stream of [false, true]) {
      test(`the client's tool loop (${stream ? 'streamed' : 'whole'})`, async () => {
        const asked = [];
        const runnable = {
          type: 'function',
          function: {
            ...weather.function,
            parse: JSON.parse,
            function: (args) => {
              asked.push(args);
              return '{"temperature": 21}';
            },
          },
        };
        const runner = client.chat.completions.runTools({
          model: 'nano', temperature: 0, max_tokens: 100, stream,
          messages: user('What is the weather in Paris?'), tools: [runnable],
        });
        assert.equal(await runner.finalContent(), 'It is 21 degrees in Paris.');
        assert.deepEqual(asked, [{ city: 'Paris' }]);
      });
    }

    test('a stop string cuts a call, and its arguments stay JSON', async () => {
      const request = { ...questions['a string'][0], stop: ['ris</'] };
      const [choice] = (await ask(request)).choices;
      assert.equal(choice.stop_reason, 'ris</');
      assert.equal(choice.message.tool_calls[0].function.arguments, '{"city": "Pa"}');
      let streamed = '';
      for await (const chunk of await ask({ ...request, stream: true })) {
        for (const piece of chunk.choices[0].delta.tool_calls ?? []) {
          streamed += piece.function.arguments;
        }
      }
      assert.equal(streamed, '{"city": "Pa"}');
    });

    test('max_tokens cuts a call: finish_reason says so', async () => {
      const [request] = questions['a file'];
      const finishes = new Set();
      for (let limit = 1; limit < 40; limit += 3) {
        const [choice] = (await ask({ ...request, max_tokens: limit })).choices;
        finishes.add(choice.finish_reason);
        for (const call of choice.message.tool_calls ?? []) JSON.parse(call.function.arguments);
      }
      assert.deepEqual(finishes, new Set(['length', 'tool_calls']));
    });

    test('tool_choice', async () => {
      const [request] = questions['a string'];
      const none = (await ask({ ...request, tool_choice: 'none' })).choices[0];
      assert.equal(none.message.tool_calls, undefined);
      assert.equal(none.finish_reason, 'stop');
      const auto = (await ask({ ...request, tool_choice: 'auto', parallel_tool_calls: false }))
        .choices[0];
      assert.equal(auto.message.tool_calls.length, 1);
      for (const choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
        const failure = await ask({ ...request, tool_choice: choice }).catch((error) => error);
        assert.equal(failure.status, 400);
        assert.equal(failure.param, 'tool_choice');
        assert.match(failure.error.message, /only "none" or "auto" is accepted\.$/);
      }
    });

    test('an answer follows the result, whatever form the arguments come back in', async () => {
      const { messages, tools } = questions['a string'][0];
      for (const args of ['{"city": "Paris"}', { city: 'Paris' }]) {
        const [choice] = (await ask({
          tools,
          messages: [...messages,
            {
              role: 'assistant',
              content: null,
              tool_calls: [
                { id: 'a', type: 'function', function: { name: 'get_weather', arguments: args } }],
            },
            { role: 'tool', tool_call_id: 'a', content: '{"temperature": 21}' }],
        })).choices;
        assert.equal(choice.message.content, 'It is 21 degrees in Paris.');
      }
    });
  });
}

// Requests in the shape that coding agents send, with their odd parts, to the real program: each is
// taken, its stream is read as the agent reads it, and where the bundled pair calls a tool the next
// request goes on with the result. The bodies are written for this test. docs/agents.md tells what
// was tested with the agents themselves.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, speculative } from './server.mjs';

const schema = (properties) => ({
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: Object.fromEntries(Object.entries(properties).map(([key, type]) => [
    key, { type, description: `The ${key}` }])),
  required: Object.keys(properties),
  additionalProperties: false,
});

// 27 tools, as many as Claude Code offers. The pair knows read_file and run_command.
const functions = ['read_file', 'run_command', 'Task', 'Glob', 'Grep', 'LS', 'Edit', 'MultiEdit',
  'Write', 'NotebookEdit', 'WebFetch', 'TodoWrite', 'BashOutput', 'KillShell', 'SlashCommand',
  'ExitPlanMode', 'ListMcpResources', 'ReadMcpResource', 'mcp__ide__diagnostics',
  'mcp__ide__execute', 'mcp__git__log', 'mcp__git__show', 'mcp__git__blame', 'mcp__db__query',
  'mcp__db__schema', 'mcp__web__open', 'mcp__web__click'].map((name) => ({
  name,
  description: name === 'read_file' ? 'Read a file' : `What ${name} does, in a few words.`,
  parameters: name === 'run_command' ? schema({ command: 'string' }) : schema({ path: 'string' }),
}));
const chatTools = functions.map((one) => ({ type: 'function', function: one }));

// The events of a stream: [name or null, data].
async function events(response) {
  assert.equal(response.status, 200, await (response.ok ? '' : response.text()));
  assert.match(response.headers.get('content-type'), /^text\/event-stream/);
  const all = [];
  for (const block of (await response.text()).split('\n\n')) {
    const lines = block.split('\n');
    const data = lines.find((line) => line.startsWith('data: '))?.slice(6);
    if (data === undefined) continue;
    const name = lines.find((line) => line.startsWith('event: '))?.slice(7) ?? null;
    all.push([name, data === '[DONE]' ? data : JSON.parse(data)]);
  }
  return all;
}

describe('agents', () => {
  let server;
  before(async () => {
    server = await Server.start(['--speculative-config', speculative(6)]);
  });
  after(() => server.stop());

  describe('Claude Code', () => {
    const body = (number, messages) => ({
      model: 'claude-sonnet-4-5-20250929',
      max_tokens: 32000,
      temperature: 0,
      stream: true,
      system: [
        { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1.9; cch=${number};` },
        { type: 'text', text: 'You are a coding assistant.', cache_control: { type: 'ephemeral' } },
      ],
      messages,
      tools: [
        ...functions.map(({ parameters, ...one }) => ({ ...one, input_schema: parameters })),
        { type: 'web_search_20250305', name: 'web_search', max_uses: 8 },
      ],
      thinking: { type: 'disabled' },
      metadata: { user_id: 'user_0_account__session_1' },
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
      output_config: { effort: 'medium' },
      made_up_beta: { on: true },
    });
    const messages = [{
      role: 'user',
      content: [
        { type: 'text', text: '<system-reminder>\nBe short.\n</system-reminder>' },
        { type: 'text', text: 'Read main.py', cache_control: { type: 'ephemeral' } },
      ],
    }];
    const post = (route, json) => fetch(`${server.url}${route}?beta=true`, {
      method: 'POST',
      headers: {
        'x-api-key': 'any', 'anthropic-version': '2023-06-01',
        'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14,made-up-2030-01-01',
      },
      body: JSON.stringify(json),
    });
    let call;

    test('27 tools, 32,000 tokens, blocks, betas', async () => {
      const all = await events(await post('/v1/messages', body('1a2b3', messages)));
      assert.equal(all[0][0], 'message_start');
      assert.equal(all[0][1].message.model, 'claude-sonnet-4-5-20250929');
      assert.deepEqual(all.slice(-2).map(([name]) => name), ['message_delta', 'message_stop']);
      const start = all.find(([name]) => name === 'content_block_start')[1];
      const input = all.map(([, data]) => data.delta?.partial_json ?? '').join('');
      call = { ...start.content_block, input: JSON.parse(input) };
      assert.equal(call.name, 'read_file');
      assert.deepEqual(call.input, { path: 'main.py' });
      assert.equal(all.at(-2)[1].delta.stop_reason, 'tool_use');
    });

    test('a history of thinking and results', async () => {
      const history = [...messages,
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'I should read it.', signature: 'EqoBCkgIAxABGAI=' },
            { type: 'redacted_thinking', data: 'EvcCCk' },
            { type: 'text', text: 'Reading.' },
            call],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: 'import os\n' }] },
            { type: 'text', text: '<system-reminder>Go on.</system-reminder>' }],
        },
        { role: 'assistant', content: null },
        { role: 'user', content: 'And?' }];
      const all = await events(await post('/v1/messages', body('4c5d6', history)));
      assert.ok(all.some(([name]) => name === 'content_block_start'));
      assert.equal(all.at(-1)[0], 'message_stop');
    });

    test('the billing header changes nothing, and tokens are counted', async () => {
      const [one, two] = await Promise.all(['1a2b3', '4c5d6'].map(async (number) => (
        await post('/v1/messages/render', body(number, messages))).json()));
      assert.equal(one.prompt, two.prompt);
      assert.ok(!one.prompt.includes('billing'));
      const counted = await (await post('/v1/messages/count_tokens',
        (({ max_tokens: limit, stream, ...rest }) => rest)(body('7e', messages)))).json();
      assert.equal(counted.input_tokens, one.count);
    });

    test('the request for a title', async () => {
      const response = await post('/v1/messages', {
        model: 'claude-haiku-4-5', max_tokens: 512, temperature: 0, stream: false,
        system: 'Summarize the conversation in a title.',
        messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hello! How' }],
      });
      const message = await response.json();
      assert.equal(message.model, 'claude-haiku-4-5');
      assert.equal(message.content.length, 1);
    });
  });

  test('Codex: tools of all its kinds, developers, reasoning, and the next turn', async () => {
    const body = (input) => ({
      model: 'nano',
      stream: true,
      store: false,
      temperature: 0,
      instructions: 'You are a coding agent.',
      input,
      tools: [
        { type: 'function', strict: false, ...functions[1], name: 'exec_command' },
        {
          type: 'custom', name: 'apply_patch', description: 'Edit files',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "*** Begin Patch"' },
        },
        {
          type: 'namespace', name: 'mcp__files', description: 'Tools of files',
          tools: [{ type: 'function', strict: false, ...functions[0] }],
        },
        { type: 'local_shell' },
      ],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      reasoning: { effort: 'none', summary: 'auto' },
      include: ['reasoning.encrypted_content'],
      prompt_cache_key: '01a2',
      client_metadata: { turn_id: '1' },
      text: { verbosity: 'low' },
    });
    const input = [
      { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Be short.' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: '<environment_context/>' }] },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Read main.py' }] }];
    const all = await events(await server.post('/v1/responses', body(input)));
    assert.deepEqual(all.map(([name]) => name), all.map(([, data]) => data.type));
    assert.equal(all[0][0], 'response.created');
    assert.equal(all.at(-1)[0], 'response.completed');
    const { usage } = all.at(-1)[1].response;
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
    const done = all.filter(([name]) => name === 'response.output_item.done')
      .map(([, data]) => data.item);
    assert.equal(done.length, 1);
    assert.equal(done[0].type, 'function_call');
    assert.equal(done[0].namespace, 'mcp__files');
    assert.equal(done[0].name, 'read_file');
    assert.deepEqual(JSON.parse(done[0].arguments), { path: 'main.py' });
    const next = [...input,
      { type: 'reasoning', summary: [], content: null, encrypted_content: 'lagoon:I read it.' },
      done[0],
      {
        type: 'function_call_output', call_id: done[0].call_id,
        output: [{ type: 'input_text', text: 'Output:' }, { type: 'input_text', text: 'import os\n' }],
      }];
    const rest = await events(await server.post('/v1/responses', body(next)));
    assert.equal(rest.at(-1)[0], 'response.completed');
    assert.ok(rest.at(-1)[1].response.output.length > 0);
  });

  // What the chunks of a chat's stream add up to.
  function chat(all) {
    const message = { content: '', reasoning: '', calls: [], finish: null, usage: null };
    assert.equal(all.at(-1)[1], '[DONE]');
    for (const [name, chunk] of all.slice(0, -1)) {
      assert.equal(name, null);
      message.usage = chunk.usage ?? message.usage;
      const [choice] = chunk.choices;
      if (!choice) continue;
      message.finish = choice.finish_reason ?? message.finish;
      message.content += choice.delta.content ?? '';
      message.reasoning += choice.delta.reasoning_content ?? '';
      for (const piece of choice.delta.tool_calls ?? []) {
        message.calls[piece.index] ??= { id: piece.id, name: piece.function.name, arguments: '' };
        message.calls[piece.index].arguments += piece.function.arguments ?? '';
      }
    }
    return message;
  }
  const ask = async (body) => chat(await events(await server.post('/v1/chat/completions',
    { model: 'nano', temperature: 0, stream: true, stream_options: { include_usage: true }, ...body })));

  const chats = {
    opencode: {
      max_tokens: 4096, top_p: 1, tools: chatTools, tool_choice: 'auto',
      messages: [
        { role: 'system', content: 'You are a coding assistant.' },
        { role: 'user', content: [{ type: 'text', text: 'Read main.py' }] }],
    },
    Cline: {
      tools: chatTools, tool_choice: 'auto', reasoning_effort: 'none',
      messages: [
        { role: 'system', content: 'You are a coding assistant.' },
        { role: 'user', content: [{ type: 'text', text: 'Read main.py' }] }],
    },
    Zed: {
      max_completion_tokens: 4096, stop: [], tools: chatTools, parallel_tool_calls: false,
      prompt_cache_key: 'thread', reasoning_effort: 'none',
      messages: [
        { role: 'system', content: 'You are a coding assistant.' },
        { role: 'user', content: 'Read main.py' }],
    },
    pool: {
      tools: chatTools.map((one) => ({ ...one, function: { ...one.function, strict: true } })),
      messages: [
        { role: 'developer', content: 'You are a coding assistant.' },
        { role: 'user', content: 'Read main.py' }],
    },
  };
  for (const [name, body] of Object.entries(chats)) {
    test(`${name}: a call, its result, null content and reasoning that comes back`, async () => {
      const first = await ask(body);
      assert.equal(first.finish, 'tool_calls');
      assert.equal(first.calls.length, 1);
      assert.equal(first.calls[0].name, 'read_file');
      assert.deepEqual(JSON.parse(first.calls[0].arguments), { path: 'main.py' });
      assert.ok(first.usage.prompt_tokens > 1000);
      assert.equal(first.usage.prompt_tokens_details.cached_tokens !== undefined, true);
      const [call] = first.calls;
      const next = await ask({
        ...body,
        messages: [...body.messages,
          {
            role: 'assistant', content: null, reasoning_content: 'I should read it.',
            tool_calls: [{
              id: call.id, type: 'function',
              function: { name: call.name, arguments: call.arguments },
            }],
          },
          { role: 'tool', tool_call_id: call.id, content: 'import os\n' }],
      });
      assert.ok(next.content.length + next.calls.length > 0);
      assert.ok(['stop', 'tool_calls'].includes(next.finish));
    });
  }

  // Claude Code and Codex give a request up that shows no sign of life: here while it waits for others.
  test('who waits gets events: ping, response.in_progress', async () => {
    const story = {
      model: 'nano', stream: true, max_tokens: 15000, ignore_eos: true,
      messages: [{ role: 'user', content: 'Tell me a story.' }],
    };
    const leave = new AbortController();
    const post = (route, body) => fetch(server.url + route,
      { method: 'POST', body: JSON.stringify(body), signal: leave.signal });
    const busy = await Promise.all([1, 2, 3, 4].map(() => post('/v1/chat/completions', story)));
    const waiting = [
      [await post('/v1/messages', story), 'event: ping\ndata: {"type":"ping"}\n\n'],
      [await post('/v1/responses', { ...story, input: 'Tell me a story.' }),
        'event: response.in_progress\ndata: {"type":"response.in_progress","sequence_number":2,'],
    ];
    await Promise.all(waiting.map(async ([response, sign]) => {
      let seen = '';
      for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
        seen += piece;
        if (seen.includes(sign)) return;
      }
      assert.fail(seen);
    }));
    leave.abort();
    await Promise.all(busy.map((response) => response.text().catch(() => {})));
  });

  test('aider: plain text and a long system prompt', async () => {
    const message = await ask({
      messages: [
        { role: 'system', content: 'Act as an expert software developer.\n'.repeat(200) },
        { role: 'user', content: 'Files: none' },
        { role: 'assistant', content: 'Ok.' },
        { role: 'user', content: 'capital of France? one word' }],
      max_tokens: 16,
    });
    assert.ok(message.content.length > 0);
    assert.ok(['stop', 'length'].includes(message.finish));
  });
});

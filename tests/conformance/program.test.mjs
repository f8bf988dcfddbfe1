// The program's command line: start-up errors, signals, generate.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run, Server, draft, speculative, target, user } from './server.mjs';

const wrong = {
  'a directory that is not there': [['serve', '/no/such/model'], /\/no\/such\/model/],
  'a draft as the model': [['serve', draft], /DFlash/],
  'JSON that is none': [['serve', target, '--speculative-config', '{'], /--speculative-config/],
  'another method': [['serve', target, '--speculative-config',
    '{"method":"eagle","model":"x","num_speculative_tokens":1}'], /eagle/],
  'too many proposals': [['serve', target, '--speculative-config', speculative(16)], /at most 15/],
  'a draft that is not there': [['serve', target, '--speculative-config',
    '{"method":"dflash","model":"/no/draft","num_speculative_tokens":6}'], /\/no\/draft/],
  'kwargs that are no object': [['serve', target, '--default-chat-template-kwargs', '[]'],
    /--default-chat-template-kwargs/],
  'an unknown option': [['serve', target, '--prot', '1'], /--prot.*--port/],
  'too long a context': [['serve', target, '--max-model-len', '1m'], /1000000.*16384/],
  'no command': [[], /command/],
};
for (const [name, [args, message]] of Object.entries(wrong)) {
  test(`start-up error: ${name}`, async () => {
    const { code, stdout, stderr } = await run(args);
    assert.notEqual(code, 0);
    assert.equal(stdout, '');
    assert.match(stderr, message);
    assert.match(stderr, /^lagoon: [^\n]+\n$/); // one line
  });
}

test('a port that is taken', async () => {
  const server = await Server.start();
  const port = new URL(server.url).port;
  const { code, stderr } = await run(['serve', target, '--port', port]);
  assert.equal(code, 1);
  assert.match(stderr, new RegExp(`^lagoon: cannot listen on 127\\.0\\.0\\.1:${port}: the port is in use by lagoon \\(process ${server.child.pid}\\);.*--port\n$`));
  await server.stop();
});

for (const signal of ['SIGINT', 'SIGTERM']) {
  test(`${signal} ends the server, also while it streams`, async () => {
    const server = await Server.start(['--speculative-config', speculative(6),
      '--shutdown-timeout', '0']);
    const stream = await server.client.chat.completions.create({
      model: 'nano', messages: user('Tell me a story.'), ignore_eos: true, max_tokens: 16000,
      stream: true,
    });
    await stream[Symbol.asyncIterator]().next();
    const { code, seconds } = await server.stop(signal);
    assert.equal(code, 0);
    assert.ok(seconds < 1.5, `took ${seconds} s`);
  });
}

test('the options of serve', async () => {
  const server = await Server.start(['--max-model-len', '1k', '--port', '0',
    '--default-chat-template-kwargs', '{"enable_thinking": true}', '--served-model-name', 'other']);
  assert.match(server.stdout, /^thinking: on unless/m);
  assert.match(server.stdout, /^no draft: --speculative-config not given$/m);
  const models = (await server.client.models.list()).data;
  assert.deepEqual(models.map((model) => model.id), ['other']);
  assert.equal(models[0].max_model_len, 1000);
  const answer = await server.client.chat.completions.create(
    { model: 'other', messages: user('What is 17 + 25?'), temperature: 0, max_tokens: 100 });
  assert.ok(answer.choices[0].message.reasoning.length > 0);
  await server.stop();
});

test('generate', async () => {
  const { code, stdout, stderr } = await run(['generate', target, '--prompt',
    'capital of France? one word', '--temperature', '0', '--speculative-config', speculative(6)]);
  assert.equal(code, 0);
  assert.equal(stdout, 'Paris\n');
  assert.match(stderr, /^\d+ tokens, \d+\.\d+ tokens per step, \d+ of \d+ drafted tokens accepted/);
});

test('generate --raw, and too long an answer', async () => {
  const raw = await run(['generate', target, '--raw', '--prompt', 'import os\n', '--temperature',
    '0', '--max-tokens', '5']);
  assert.equal(raw.code, 0);
  assert.match(raw.stderr, /^5 tokens, 1\.00 tokens per step, no drafts/);
  const long = await run(['generate', target, '--prompt', 'x', '--max-tokens', '16384']);
  assert.equal(long.code, 1);
  assert.match(long.stderr, /^lagoon: .*16384 tokens.*\n$/);
});

test('--version and --help', async () => {
  assert.match((await run(['--version'])).stdout, /^lagoon \d+\.\d+\.\d+\n$/);
  const help = await run(['serve', '--help']);
  assert.equal(help.code, 0);
  assert.match(help.stdout, /--speculative-config/);
});

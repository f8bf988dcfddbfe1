// lagoon synth and lagoon bench: random checkpoints that serve, and figures in process and by URL.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { draft, run, Server, speculative, target } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lagoon-bench-'));
after(() => fs.rmSync(folder, { recursive: true }));

const at = (name) => path.join(folder, name);
const json = (name) => JSON.parse(fs.readFileSync(at(name), 'utf8'));
const digest = (name) => createHash('sha256').update(fs.readFileSync(at(name))).digest('hex');
const pair = (directory, k) =>
  JSON.stringify({ method: 'dflash', model: at(directory), num_speculative_tokens: k });
const kShort = ['--input-len', '64', '--output-len', '24', '--warmup', '1', '--repeats', '2'];

async function lagoon(...args) {
  const ended = await run(args);
  assert.equal(ended.code, 0, ended.stderr);
  return ended;
}

async function refused(args, message) {
  const { code, stdout, stderr } = await run(args);
  assert.notEqual(code, 0);
  assert.equal(stdout, '');
  assert.match(stderr, message);
  assert.match(stderr, /^(?:.*\n)*lagoon: [^\n]+\n$/);
  return stderr;
}

// What every row of the JSON file has, whatever was measured.
function checkRow(row) {
  for (const name of ['prompt_tokens', 'completion_tokens', 'decode_tokens_per_second',
    'total_tokens_per_second', 'time_to_first_token_seconds', 'prefill_tokens_per_second']) {
    const { median, min, max, values } = row[name];
    assert.ok(min > 0 && min <= median && median <= max, name);
    assert.ok(values.length >= 1, name);
  }
  assert.equal(row.completion_tokens.min, 24);
  assert.equal(row.completion_tokens.max, 24);
}

describe('a synthetic pair', () => {
  before(async () => {
    await lagoon('synth', '--config', target, '--layers', '3', '--out', at('target'));
    await lagoon('synth', '--config', path.join(draft, 'config.json'), '--layers', '3',
      '--out', at('draft'));
  });

  test('synth writes the same again, and something else for another seed', async () => {
    await lagoon('synth', '--config', target, '--layers', '3', '--out', at('again'));
    await lagoon('synth', '--config', target, '--layers', '3', '--seed', '1', '--out', at('other'));
    assert.equal(digest('again/model.safetensors'), digest('target/model.safetensors'));
    assert.notEqual(digest('other/model.safetensors'), digest('target/model.safetensors'));
    const config = json('target/config.json');
    assert.equal(config.num_hidden_layers, 3);
    assert.equal(config.layer_types.length, 3);
    assert.ok(fs.existsSync(at('target/tokenizer.json')));
    assert.ok(!fs.existsSync(at('draft/tokenizer.json')));
    assert.deepEqual(json('draft/config.json').dflash_config.target_layer_ids, [0, 1, 2]);
  });

  test('generate says the same from disk and from the config alone', async () => {
    await lagoon('synth', '--config', target, '--layers', '3', '--no-weights', '--out', at('bare'));
    const args = ['--prompt', 'x', '--raw', '--temperature', '0', '--max-tokens', '20'];
    const disk = await lagoon('generate', at('target'), ...args);
    const made = await lagoon('generate', at('bare'), '--load-format', 'dummy', ...args);
    assert.equal(made.stdout, disk.stdout);
    assert.match(made.stderr, /\(random weights, seed 0\)\n$/);
    assert.doesNotMatch(disk.stderr, /random/);
    await refused(['generate', at('bare'), ...args], /has no weights/);
  });

  test('bench in process, with synthetic acceptance and shared experts', async () => {
    const { stdout } = await lagoon('bench', at('target'), '--load-format', 'dummy',
      '--speculative-config', pair('draft', 3), '--k', '0,3', '--streams', '1,2', ...kShort,
      '--synthetic-acceptance', '1,1,0', '--dummy-routing-overlap', '0.5', '--json', at('a.json'));
    assert.match(stdout, /^WEIGHTS ARE RANDOM/m);
    assert.match(stdout, /^ACCEPTANCE IS SYNTHETIC/m);
    assert.match(stdout, /^acceptance by position, k 3, streams 1 \(synthetic\): 1\.00 0\.88 0\.00$/m);
    const figures = json('a.json');
    assert.equal(figures.synthetic_acceptance, true);
    assert.equal(figures.dummy_weights, true);
    assert.equal(figures.facts.model, 'target');
    assert.deepEqual(figures.rows.map((row) => [row.k, row.streams]),
      [[0, 1], [0, 2], [3, 1], [3, 2]]);
    figures.rows.forEach(checkRow);
    const [plain, , drafted] = figures.rows;
    assert.equal(plain.acceptance, null);
    assert.equal(plain.synthetic_acceptance, false);
    assert.equal(plain.rows_per_step, 1);
    assert.equal(plain.experts_per_layer, 4);
    // 23 tokens after the first: seven steps of three, then two tokens that leave one draft to try.
    assert.ok(Math.abs(drafted.accepted_drafts_per_step - 1.9) < 0.15);
    assert.equal(drafted.tokens_emitted_per_step, drafted.accepted_drafts_per_step + 1);
    assert.ok(drafted.experts_per_layer > 4 && drafted.experts_per_layer < 16);
  });

  test('bench without prompts and without a draft', async () => {
    const { stdout } = await lagoon('bench', at('target'), '--load-format', 'dummy', '--k', '0,3',
      '--random-context', '--random-proposals', '--input-len', '900', '--output-len', '24',
      '--warmup', '0', '--repeats', '1', '--json', at('r.json'));
    assert.match(stdout, /^memory: \d+\.\d GB\/s$/m);
    const figures = json('r.json');
    figures.rows.forEach(checkRow);
    const [one, four] = figures.rows;
    assert.equal(one.random_context, true);
    assert.equal(one.step_seconds.count, 23);
    assert.equal(four.rows_per_step > 3.5, true);
    assert.ok(four.acceptance < 0.2);
    // Three rows more read more experts, and nothing of a draft.
    assert.ok(four.step_bytes > one.step_bytes && four.step_bytes < 3 * one.step_bytes);
    assert.deepEqual(figures.draft_steps, []);
    assert.equal(figures.loads.length, 1);
    const { memory_bytes_per_second: rate } = figures;
    const share = one.step_bytes / one.step_seconds.median / rate;
    assert.ok(Math.abs(one.share_of_memory_rate - share) < 1e-9);
  });

  test('bench by URL', async () => {
    const server = await Server.start(['--load-format', 'dummy', '--speculative-config',
      speculative(3), '--synthetic-acceptance', '1,1,0']);
    try {
      assert.match(server.stdout, /^SYNTHETIC: random weights, seed 0; synthetic acceptance 1 1 0: /m);
      assert.match(await (await fetch(`${server.url}/metrics`)).text(),
        /vllm:spec_decode_num_drafts_total\{acceptance="synthetic",/);
      for (const extra of [[], ['--chat']]) {
        const { stdout } = await lagoon('bench', '--url', `${server.url}/v1`, '--streams', '1,2',
          ...kShort, ...extra, '--json', at('u.json'));
        assert.match(stdout, /^ACCEPTANCE IS SYNTHETIC/m);
        const figures = json('u.json');
        assert.equal(figures.facts.model, 'nano');
        figures.rows.forEach(checkRow);
        for (const row of figures.rows) {
          assert.equal(row.k, null);
          assert.ok(Math.abs(row.prompt_tokens.median - 64) < (extra.length ? 16 : 8));
          assert.ok(Math.abs(row.accepted_drafts_per_step - 1.9) < 0.15);
          assert.equal(row.acceptance_by_position[2], 0);
        }
      }
      await refused(['bench', '--url', server.url, '--served-model', 'nobody', ...kShort],
        /status 404: .*nobody/);
      await refused(['bench', '--url', server.url, '--input-len', '99999'],
        /status 400: .*maximum context length/);
    } finally {
      await server.stop();
    }
  });
});

test('bench of the bundled pair: acceptance in process is that by URL', async () => {
  const shape = ['--input-len', '128', '--output-len', '24', '--warmup', '1', '--repeats', '2'];
  await lagoon('bench', target, '--speculative-config', speculative(4), ...shape,
    '--json', at('p.json'));
  const server = await Server.start(['--speculative-config', speculative(4)]);
  try {
    await lagoon('bench', '--url', server.url, ...shape, '--json', at('s.json'));
  } finally {
    await server.stop();
  }
  const [here] = json('p.json').rows;
  const [there] = json('s.json').rows;
  assert.equal(here.prompt_tokens.median, 128);
  assert.equal(here.synthetic_acceptance, false);
  assert.ok(here.acceptance > 0);
  // The prompts are the same but for their last tokens, since a server's are cut by characters.
  assert.ok(Math.abs(here.tokens_emitted_per_step - there.tokens_emitted_per_step) < 0.8);
});

const half = ['--input-len', '16', '--output-len', '2', '--repeats', '1', '--warmup', '0'];
// Refused before anything is measured.
const wrong = {
  'a URL that is none': [['bench', '--url', 'localhost:1'], /does not begin with http:\/\//],
  'a dead server': [['bench', '--url', 'http://127.0.0.1:1'], /127\.0\.0\.1:1 cannot be connected/],
  'more proposals than the draft makes': [['bench', target, '--speculative-config', speculative(4),
    '--k', '16'], /at most 15/],
  'more proposals than the draft makes, beside none': [['bench', target, '--speculative-config',
    speculative(4), '--k', '0,16', ...half], /at most 15/],
  'more proposals than the draft makes, beside auto': [['bench', target, '--speculative-config',
    speculative(4), '--k', 'auto,16', ...half], /at most 15/],
  'a draft that is not there, beside none': [['bench', target, '--speculative-config',
    '{"method":"dflash","model":"/no/draft"}', '--k', '0,3', ...half], /\/no\/draft/],
  'a draft that is none, and no proposals': [['bench', target, '--speculative-config', '[]', '--k',
    '0', ...half], /is not a JSON object/],
  'more rows than a step has': [['bench', target, '--speculative-config', speculative(15),
    '--streams', '64', ...half], /--k 15 and --streams 64 make steps of 1024 rows/],
  'prompts longer than the context': [['bench', target, '--max-model-len', '17', ...half],
    /--input-len and --output-len make 18 tokens, and --max-model-len is 17/],
  'prompts longer than the model was made for': [['bench', target, '--input-len', '16384'],
    /make 16640 tokens, and the model was made for at most 16384/],
  'fewer rates than proposals': [['serve', target, '--speculative-config', speculative(3),
    '--synthetic-acceptance', '.5'], /1 rates, and num_speculative_tokens is 3/],
  'a sharing that no router has': [['bench', target, '--load-format', 'dummy',
    '--dummy-routing-overlap', '0.99'], /--dummy-routing-overlap is 0\.99/],
  'a file that cannot be written': [['bench', target, ...half, '--json', '/no/such/file'],
    /there is no folder \/no\/such/],
  'a file that is a folder': [['bench', target, ...half, '--json', folder], /is a folder/],
  'a config that is not there': [['synth', '--config', '/no/config', '--out', at('x')],
    /\/no\/config/],
  'more layers than there are': [['synth', '--config', target, '--layers', '9', '--out', at('x')],
    /has 8 layers/],
  'a directory with something in it': [['synth', '--config', target, '--out', target],
    /is not empty/],
  'routers of a draft': [['synth', '--config', draft, '--dummy-routing-overlap', '.5', '--out',
    at('x')], /a draft has none/],
  'a tokenizer of more tokens': [['synth', '--config', draft, '--tokenizer', target, '--out',
    at('x')], /a draft has its target's/],
};
for (const [name, [args, message]] of Object.entries(wrong)) {
  test(`error: ${name}`, async () => assert.doesNotMatch(await refused(args, message), /round 1/));
}

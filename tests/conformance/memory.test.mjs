// What is known before a weight is read, and what becomes of a start: the memory plan, inspect, the
// pair guard, health while loading, the end by kill -9.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync,
} from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, test } from 'node:test';
import { binary, draft, run, Server, speculative, target, user, within } from './server.mjs';

const directory = mkdtempSync(path.join(tmpdir(), 'lagoon-'));
after(() => rmSync(directory, { recursive: true }));
const configs = path.resolve(target, '../../tests/fixtures/configs');
const gib = 2 ** 30;

// A copy of a model to be changed.
function copy(from, name) {
  const to = path.join(directory, name);
  cpSync(from, to, { recursive: true });
  return to;
}
function edit(model, change) {
  const file = path.join(model, 'config.json');
  const config = JSON.parse(readFileSync(file));
  change(config);
  writeFileSync(file, JSON.stringify(config));
}
const withDraft = (model) => JSON.stringify({ method: 'dflash', model });

describe('inspect', () => {
  test('the full-size configs are enough, and both lines of keys and values are told', async () => {
    const args = ['inspect', path.join(configs, 'laguna-s-2.1-nvfp4/config.json'),
      path.join(configs, 'laguna-s-2.1-dflash-nvfp4/config.json'), '--max-num-batched-tokens', '8192'];
    const pinned = await run([...args, '--kv-cache-memory-bytes', '12884901888']);
    assert.equal(pinned.code, 0, pinned.stderr);
    assert.match(pinned.stdout, /^family: Laguna S 2\.1$/m);
    assert.match(pinned.stdout, /145,153 tensors/);
    assert.match(pinned.stdout, /^GPU KV cache size: 327,717 tokens, Maximum concurrency for 262,144 tokens per request: 1\.25x \(vLLM's formula\)$/m);
    assert.match(pinned.stdout, /^Lagoon KV cache size: 524,288 tokens, .*: 2\.00x$/m);
    const small = await run([...args, '--kv-cache-memory-bytes', '5G']);
    assert.match(small.stdout, /^vLLM would say: To serve at least one request .*the estimated maximum model length is 128192\.$/m);
    assert.match(small.stdout, /^Lagoon's estimated maximum model length is 218432/m);
    assert.match(small.stdout, /^fits: no\. /m);
  });

  test('the bundled pair, as JSON', async () => {
    const { code, stdout } = await run(['inspect', target, draft, '--json']);
    assert.equal(code, 0);
    const report = JSON.parse(stdout);
    assert.equal(report.target.state, 'complete');
    assert.equal(report.target.precision, 'NVFP4');
    assert.equal(report.pair.fits, true);
    assert.equal(report.plan.fits, true);
    assert.equal(report.plan.kv_cache_tokens, 65536);
    const stored = readdirSync(target).filter((name) => name.endsWith('.safetensors'))
      .reduce((sum, name) => sum + statSync(path.join(target, name)).size, 0);
    assert.ok(report.target.bytes > 0.9 * stored && report.target.bytes < stored);
    assert.equal(report.target.parts.reduce((sum, part) => sum + part.bytes, 0),
      report.target.bytes);
    assert.equal(report.plan.items.reduce((sum, item) => sum + item.bytes, 0),
      report.plan.host.planned);
    assert.ok(report.read_bytes_per_second > 1e8);
    const speed = (k) => report.predicted.find((row) => row.num_speculative_tokens === k)
      .tokens_per_second;
    assert.ok(speed(3) > speed(0));
  });

  test('a directory that is still being downloaded', async () => {
    const model = copy(target, 'downloading');
    rmSync(path.join(model, 'model-00002-of-00002.safetensors'));
    mkdirSync(path.join(model, '.cache/huggingface/download'), { recursive: true });
    writeFileSync(path.join(model, '.cache/huggingface/download/x.incomplete'), 'x'.repeat(1000));
    const { code, stdout } = await run(['inspect', model]);
    assert.equal(code, 0);
    assert.match(stdout, /^state: incomplete: \d+ % of the bytes, 1 of 2 files, 1 still being downloaded; .*model-00002-of-00002\.safetensors/m);
    assert.match(stdout, /^fits: yes$/m);
  });

  test('what is wrong with a pair', async () => {
    const other = copy(draft, 'Laguna-nano-DFlash-FP8');
    const { stdout } = await run(['inspect', target, other]);
    assert.match(stdout, /^pair: does not fit: .*FP8.*NVFP4/m);
    assert.match((await run(['inspect', draft])).stderr, /is a draft: give the target first/);
    assert.match((await run(['inspect', '/no/such/model'])).stderr, /^lagoon: [^\n]*\/no\/such\/model[^\n]*\n$/);
  });
});

describe('the plan of serve', () => {
  test('it is printed before loading, and holds what the process takes', async () => {
    const server = await Server.start(['--speculative-config', speculative(6)]);
    const items = [...server.stdout.matchAll(/^ {2}(\S.*?) +(\d+\.\d+) GiB/gm)]
      .map(([, name, size]) => [name, Number(size)]);
    const total = items.find(([name]) => name === 'total')[1];
    const reserve = items.find(([name]) => name === 'reserve')[1];
    assert.ok(server.stdout.indexOf('memory plan:') < server.stdout.indexOf('Model loading took'));
    await server.client.chat.completions.create({
      model: 'nano', messages: user('Tell me a story.'), ignore_eos: true, max_tokens: 300 });
    const { process_resident_memory_bytes: resident } = await server.metrics();
    // Beside the plan: the program itself, its tokenizer and threads.
    assert.ok(resident < (total - reserve) * gib + 150e6, `${resident} of ${total - reserve} GiB`);
    assert.match(server.stdout, /^GPU KV cache size: [\d,]+ tokens, .* \(vLLM's formula, with its --max-num-batched-tokens 2048\)$/m);
    await server.stop();
  });

  test('--gpu-memory-utilization caps it and demands nothing', async () => {
    const all = await Server.start(['--gpu-memory-utilization', '1.0']);
    await all.stop();
    const none = await run(['serve', target, '--port', '0', '--gpu-memory-utilization', '0.01',
      '--max-num-seqs', '512', '--max-num-batched-tokens', '1048576']);
    assert.equal(none.code, 1);
    assert.match(none.stderr, /^lagoon: No available memory for the cache blocks\. Try increasing `gpu_memory_utilization` when initializing the engine\. [^\n]*--gpu-memory-utilization[^\n]*\n$/);
  });

  test('more than the machine has is refused in one sentence', async () => {
    const { code, stderr, stdout } = await run(['serve', target, '--port', '0',
      '--kv-cache-memory-bytes', '100000G']);
    assert.equal(code, 1);
    assert.match(stderr, /^lagoon: Free memory on device cpu \([\d.]+\/[\d.]+ GiB\) on startup is less than desired GPU memory utilization \([\d.]+, [\d.]+ GiB\)\. Decrease GPU memory utilization or reduce GPU memory used by other processes\. Here --kv-cache-memory-bytes \d+ fits\.[^\n]*\n$/);
    assert.ok(!stdout.includes('Model loading took'));
    const fits = /Here --kv-cache-memory-bytes (\d+) fits/.exec(stderr)[1];
    const inspected = await run(['inspect', target, '--kv-cache-memory-bytes', String(Math.floor(fits * 0.9))]);
    assert.match(inspected.stdout, /^fits: yes$/m);
  });
});

describe('a pair made wrong', () => {
  const wrong = {
    vocabulary: [(config) => { config.vocab_size = config.draft_vocab_size = 4000; }, /vocabulary/],
    'hidden size': [(config) => { config.hidden_size = 128; }, /hidden_size/],
    'tap count': [(config) => {
      config.dflash_config.target_layer_ids.pop();
      config.eagle_aux_hidden_state_layer_ids?.pop();
    }, /aux_hidden_norms|fc\.weight/],
    'tap ids': [(config) => {
      config.dflash_config.target_layer_ids = config.dflash_config.target_layer_ids
        .map((id, i, all) => (i + 1 === all.length ? 40 : id));
      delete config.eagle_aux_hidden_state_layer_ids;
    }, /layer/],
    'block size': [(config) => { config.block_size = 3; delete config.dflash_config.block_size; },
      /block_size 3 makes at most 2/, 6],
    'tensor set': [(config) => {
      config.num_hidden_layers += 1;
      config.layer_types.push(config.layer_types[0]);
    }, /tensor "layers\.\d+\.[^"]*" is missing/],
    'mask id': [(config) => { config.dflash_config.mask_token_id = 100000; }, /mask_token_id/],
  };
  for (const [name, [change, message, proposals]] of Object.entries(wrong)) {
    test(`${name}: refused before a weight is read`, async () => {
      const model = copy(draft, `wrong-${name.replaceAll(' ', '-')}`);
      edit(model, change);
      const config = JSON.stringify({ method: 'dflash', model,
        ...(proposals ? { num_speculative_tokens: proposals } : {}) });
      const { code, stderr, stdout } = await run(['serve', target, '--port', '0',
        '--speculative-config', config]);
      assert.equal(code, 1);
      assert.match(stderr, /^lagoon: [^\n]+\n$/);
      assert.match(stderr, message);
      assert.ok(!stdout.includes('memory plan'));
    });
  }

  test('precision: refused by the name', async () => {
    const { code, stderr } = await run(['serve', target, '--port', '0', '--speculative-config',
      withDraft(copy(draft, 'Laguna-S-DFlash-FP8'))]);
    assert.equal(code, 1);
    assert.match(stderr, /^lagoon: the draft [^\n]* was made for a target in FP8, as its name says[^\n]*NVFP4[^\n]*\n$/);
  });

  // Weights of another training: everything fits but what they say.
  test('what only the self-test finds: served without, or not at all', async () => {
    const model = path.join(directory, 'alien');
    const made = await run(['synth', '--config', path.join(draft, 'config.json'), '--out', model]);
    assert.equal(made.code, 0, made.stderr);
    const server = await Server.start(['--speculative-config', withDraft(model)]);
    assert.match(server.stdout, /^no draft: the draft .*alien is of no use to .* % of 25\d drafted tokens were accepted, and 10 % are the least; /m);
    const answer = await server.client.chat.completions.create({ model: 'nano', temperature: 0,
      messages: user('capital of France? one word') });
    assert.equal(answer.choices[0].message.content, 'Paris');
    assert.equal((await server.metrics())['vllm:spec_decode_num_draft_tokens_total'], 0);
    await server.stop();
    const refused = await run(['serve', target, '--port', '0', '--require-draft',
      '--speculative-config', withDraft(model)]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /of no use to[^\n]*--require-draft[^\n]*\n$/);
    const none = await run(['serve', target, '--port', '0', '--require-draft',
      '--speculative-config', speculative(0)]);
    assert.equal(none.code, 1);
    assert.match(none.stderr, /^lagoon: --require-draft is about a draft, and num_speculative_tokens is 0[^\n]*\n$/);
  });

  test('contexts and steps that are short for the self-test', async () => {
    for (const short of [['--max-model-len', '30'], ['--max-model-len', '2'],
      ['--max-num-seqs', '1', '--max-num-batched-tokens', '2']]) {
      const server = await Server.start(['--speculative-config', speculative(3), '--require-draft', ...short]);
      assert.match(server.stdout, /^draft on built-in code: /m);
      await server.stop();
    }
  });

  test('the bundled pair passes', async () => {
    const server = await Server.start(['--speculative-config', speculative(3), '--require-draft']);
    const [, percent, tokens] = /^draft on built-in code: \d+ of \d+ drafts accepted \(([\d.]+) %\), ([\d.]+) tokens per step, [\d.]+ times/m
      .exec(server.stdout);
    assert.ok(Number(percent) > 30 && Number(tokens) > 1.9, server.stdout);
    // It is no request: metrics begin at 0.
    assert.equal((await server.metrics())['vllm:spec_decode_num_drafts_total'], 0);
    await server.stop();
  });
});

// A checkpoint that takes a moment to read: the bundled config, wider.
describe('a start that takes a while', () => {
  const model = path.join(directory, 'large');
  const socketPath = path.join(directory, 'start.socket');
  const health = () => fetchHealth(socketPath);

  test('health tells phase and percent, and kill -9 in any phase leaves nothing', async () => {
    const config = JSON.parse(readFileSync(path.join(target, 'config.json')));
    const wide = path.join(directory, 'wide.json');
    config.intermediate_size = 65536;
    config.moe_intermediate_size = 1024;
    writeFileSync(wide, JSON.stringify(config));
    const made = await run(['synth', '--config', wide, '--out', model, '--tokenizer', target]);
    assert.equal(made.code, 0, made.stderr);

    const start = () => spawn(binary, ['serve', model, '--uds', socketPath], { stdio: 'ignore' });
    const phases = new Map();
    const killed = new Set();
    for (let round = 0; round < 6; ++round) {
      const child = start();
      const ended = new Promise((resolve) => { child.on('close', (code, signal) => resolve({ code, signal })); });
      let seen = null;
      assert.ok(await within(60, async () => {
        seen = await health();
        if (!seen) return false;
        phases.set(seen.phase, seen);
        return !killed.has(seen.phase);
      }) || round > 0, 'no answer');
      if (seen) killed.add(seen.phase);
      child.kill('SIGKILL');
      assert.equal((await ended).signal, 'SIGKILL');
      if (seen?.phase === 'ready') break;
    }
    assert.ok(killed.has('ready'), [...killed].join());
    assert.ok(killed.size >= 2, [...killed].join());
    for (const [phase, body] of phases) {
      assert.equal(body.status, phase === 'ready' ? 200 : 503);
      assert.ok(body.percent >= 0 && body.percent <= 100);
    }
    // The socket's file is replaced, and nothing else is in the way.
    const again = await Server.start([], { listen: ['--uds', socketPath] });
    await again.stop();
  });
});

// The body of /health with its status, or null where nobody listens yet.
function fetchHealth(socketPath) {
  return new Promise((resolve) => {
    const sent = http.request({ socketPath, path: '/health', agent: false }, (response) => {
      let text = '';
      response.on('data', (data) => { text += data; });
      response.on('end', () => resolve({ ...JSON.parse(text), status: response.statusCode }));
    });
    sent.on('error', () => resolve(null));
    sent.end();
  });
}

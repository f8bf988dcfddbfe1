// tools/bench_gpu.py with a lagoon that fails or says nonsense: each stage fails by itself with a
// line, no figures are made of what is not there, and nothing stays behind.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { binary, draft, target } from './server.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lagoon-bench-gpu-'));
after(() => fs.rmSync(folder, { recursive: true }));
const at = (name) => path.join(folder, name);
const tool = fileURLToPath(new URL('../../tools/bench_gpu.py', import.meta.url));

// A lagoon whose bench does `$FAKE`, with the file of --json in $out; its synth works, unless
// $FAKE_SYNTH is to be done in its place.
fs.writeFileSync(at('lagoon'), `#!/usr/bin/env bash
if [[ $1 == synth ]]; then
  if [[ -n \${FAKE_SYNTH-} ]]; then eval "$FAKE_SYNTH"; exit; fi
  exec '${binary}' "$@"
fi
while [[ $# -gt 1 && $1 != --json ]]; do shift; done
out=\${2-}
eval "$FAKE"
`, { mode: 0o755 });

function measure(environment, stages, result = at('r.json')) {
  fs.mkdirSync(at('work'), { recursive: true });
  const { status, stdout, stderr } = spawnSync('python3', [tool, at('lagoon'), result, 'abc'], {
    encoding: 'utf8',
    env: { ...process.env, STAGES: stages, LAYERS: '2', BACKEND: 'cpu', LENGTH: '64',
      CONFIG: target, DRAFT_CONFIG: draft, WORK: at('work'), ...environment },
  });
  assert.doesNotMatch(stderr, /Traceback/);
  assert.deepEqual(fs.readdirSync(at('work')), []);
  return { status, stdout, stderr };
}

const row = '{"k":0,"streams":1,"experts_per_layer":1,"tokens_emitted_per_step":1,"rows_per_step":1,'
  + '"step_bytes":1,"host_share":0,"prompt_tokens":{"median":1},"completion_tokens":{"median":1},'
  + '"step_seconds":{"median":0,"count":0},"total_tokens_per_second":{"median":0},'
  + '"prefill_tokens_per_second":{"median":0}}';
const nonsense = {
  'an error': 'echo "lagoon: no such device" >&2; exit 1',
  'no file': 'true',
  'no JSON': 'echo nonsense > "$out"',
  'an empty object': 'echo "{}" > "$out"',
  'a list': 'echo "[]" > "$out"',
  'no rows': `echo '{"rows":[],"loads":[],"memory_bytes_per_second":1}' > "$out"`,
  'a step of no time': `echo '{"rows":[${row}],"loads":[{}],"draft_steps":[],`
    + '"memory_bytes_per_second":1}\' > "$out"',
  'bytes that are no text': String.raw`printf '\xff\xfe'; echo "{}" > "$out"`,
  'a row of nulls': `echo '{"rows":[{"k":null,"streams":null,"experts_per_layer":null,`
    + '"tokens_emitted_per_step":null,"prompt_tokens":null}],"memory_bytes_per_second":1}\' > "$out"',
};
for (const [name, fake] of Object.entries(nonsense)) {
  test(`bench gives ${name}`, () => {
    fs.writeFileSync(at('r.json'), '{"mine":1,"decode":{"tok_s":5}}');
    const { status, stdout } = measure({ FAKE: fake }, 'decode streams');
    assert.equal(status, 1);
    assert.match(stdout, /^decode +\d+ s {2}FAILED$/m);
    assert.match(stdout, /^streams +\d+ s {2}FAILED$/m);
    assert.match(stdout, /^0 passed, 2 failed$/m);
    const { meta, ...figures } = JSON.parse(fs.readFileSync(at('r.json'), 'utf8'));
    assert.deepEqual(figures, { mine: 1 });
    assert.match(meta.bench_gpu.streams.result, /FAILED/);
  });
}

test('figures of a run are not the next one\'s', () => {
  const good = row.replace('"median":0,"count":0', '"median":1,"count":1');
  const { stdout } = measure({ FAKE: `[[ -e "${at('once')}" ]] || echo '{"rows":[${good}],`
    + `"draft_steps":[],"memory_bytes_per_second":1}' > "$out"; touch "${at('once')}"` }, 'contexts');
  assert.match(stdout, /^contexts +\d+ s {2}FAILED$/m);
});

const refused = {
  'a program that is not there': [{ FAKE: '' }, /lagoon.* is no program/, () => {
    fs.renameSync(at('lagoon'), at('away'));
    return () => fs.renameSync(at('away'), at('lagoon'));
  }],
  'a checkpoint that is not made': [{ FAKE_SYNTH: 'echo "lagoon: no" >&2; exit 1' }, /lagoon: no/],
  'a checkpoint that is not there': [{ FAKE_SYNTH: 'true' }, /config\.json/],
  'a result that is no JSON': [{ FAKE: 'true' }, /r\.json is no JSON object/, () => {
    fs.writeFileSync(at('r.json'), '{bad');
    return () => fs.rmSync(at('r.json'));
  }],
  'a result that is a list': [{ FAKE: 'true' }, /r\.json is no JSON object/, () => {
    fs.writeFileSync(at('r.json'), '[]');
    return () => fs.rmSync(at('r.json'));
  }],
  'no stages': [{ FAKE: 'true', STAGES: ' ' }, /STAGES names none of decode/],
  'an unknown stage': [{ FAKE: 'true', STAGES: 'decode x' }, /STAGES has x, which is none of/],
  'layers that are no number': [{ FAKE: 'true', LAYERS: 'x' }, /LAYERS is 'x', which is no number/],
  'prompts of no length': [{ FAKE: 'true', LENGTH: '0' }, /LENGTH is '0', which is no number/],
};
for (const [name, [environment, message, arrange]] of Object.entries(refused)) {
  test(`refused: ${name}`, () => {
    const undo = arrange?.();
    try {
      const { status, stderr } = measure(environment, 'decode');
      assert.equal(status, 1);
      assert.match(stderr, message);
      assert.match(stderr, /^bench_gpu: [^\n]+\n$/);
    } finally {
      undo?.();
    }
  });
}

// Measures llama.cpp on a GGUF form of the bundled model, for comparison with bench/pair_bench: the
// same prompts (the chat cases of tests/golden), the same number of threads, without a draft. A
// yardstick, not part of CI.
//
//   npm install --no-save node-llama-cpp@3.22.1
//   node tools/peer_llama.mjs MODEL.gguf [--threads 2] [--turns 3] [--tokens 64]
//
// Prefill is the time of one evaluation of N tokens (no token is drawn). Decoding is greedy, one
// token after the other through the library's generator, from the first token on. The best of the
// turns counts, since other programs take time away; where they take much, tokens per second of
// processor time say more.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const options = { threads: 2, turns: 3, tokens: 64 };
let gguf;
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i].replace(/^--/, '');
  if (name !== process.argv[i] && name in options) options[name] = Number(process.argv[++i]);
  else gguf = process.argv[i];
}
if (gguf === undefined) {
  console.error('usage: node tools/peer_llama.mjs MODEL.gguf [--threads N] [--turns N] [--tokens N]');
  process.exit(2);
}

// From where the command is run, so that the library need not lie in the tree.
const require = createRequire(pathToFileURL(join(process.cwd(), 'package.json')));
const { getLlama } = await import(pathToFileURL(require.resolve('node-llama-cpp')));

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const cases = JSON.parse(readFileSync(join(root, 'tests/golden/cases.json'), 'utf8'));
const prompts = cases.filter((item) => item.kind === 'chat').map((item) => item.ids);

const llama = await getLlama({ gpu: false, build: 'never' });
const model = await llama.loadModel({ modelPath: gguf, gpuLayers: 0 });
const context = await model.createContext({
  contextSize: 4096,
  batchSize: 512,
  threads: { ideal: options.threads, min: options.threads },
});
const sequence = context.getSequence();
const seconds = () => Number(process.hrtime.bigint()) / 1e9;

const processorSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

// Least time, and least processor time, for one token.
class Best {
  wall = Infinity;
  processor = Infinity;

  start() {
    this.from = [seconds(), processorSeconds()];
  }
  stop(tokens) {
    this.wall = Math.min(this.wall, (seconds() - this.from[0]) / tokens);
    this.processor = Math.min(this.processor, (processorSeconds() - this.from[1]) / tokens);
  }
  toString() {
    return `${(1 / this.wall).toFixed(0)} tok/s, ${(1 / this.processor).toFixed(0)} a processor second`;
  }
}

for (const length of [512, 2048]) {
  const tokens = [];
  for (let i = 0; tokens.length < length; i++) tokens.push(...prompts[i % prompts.length]);
  tokens.length = length;
  const best = new Best();
  for (let turn = 0; turn < options.turns; turn++) {
    await sequence.clearHistory();
    best.start();
    await sequence.evaluateWithoutGeneratingNewTokens(tokens);
    best.stop(length);
  }
  console.log(`prefill ${String(length).padStart(5)} tokens: ${best}`);
}

const best = new Best();
for (let turn = 0; turn < options.turns; turn++) {
  for (const prompt of prompts) {
    await sequence.clearHistory();
    let count = 0;
    for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
      if (count++ === 0) best.start();
      if (count > options.tokens) break;
    }
    if (count > 1) best.stop(count - 1);
  }
}
console.log(`decode, batch 1: ${best}`);
process.exit(0);

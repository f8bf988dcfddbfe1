// Small tokenizers of the shape of large ones.

// The characters of the byte-level alphabet (text/byte_level.h).
const alphabet = new Set();
for (let byte = 0, shifted = 0; byte < 256; byte++) {
  const own = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  alphabet.add(String.fromCodePoint(own ? byte : 0x100 + shifted++));
}

function prunedAdded(tokens, most) {
  const seen = {}; // how many with these flags
  return tokens.filter((token) => {
    const { special, lstrip, rstrip, single_word, normalized } = token;
    const key = [special, lstrip, rstrip, single_word, normalized].join();
    seen[key] = (seen[key] ?? 0) + 1;
    return seen[key] <= most;
  });
}

// Keeps all sections, the tokens of single bytes or of some characters, the first `merges` merges of
// short tokens that can be kept, and `added` added tokens of each sort. Ids are given anew.
export function cut(tokenizer, merges, added) {
  const copy = structuredClone(tokenizer);
  const { vocab } = tokenizer.model;
  const byteLevel = [...alphabet].every((c) => c in vocab);
  const isBase = (token) =>
    byteLevel ? alphabet.has(token) : /^<0x..>$|^[\x00-\x7f▁é中文한😀]$|^<unk>$/u.test(token);
  copy.added_tokens = prunedAdded(tokenizer.added_tokens, added);
  const kept = new Set(Object.keys(vocab).filter(isBase));
  copy.model.merges = [];
  for (const merge of tokenizer.model.merges) {
    if (copy.model.merges.length === merges) break;
    const [left, right] = typeof merge === 'string' ? merge.split(' ') : merge;
    if (!kept.has(left) || !kept.has(right) || left.length + right.length > 8) continue;
    if (!/[\w▁]/.test(left + right)) continue;
    kept.add(left + right);
    copy.model.merges.push(merge);
  }
  for (const { content } of copy.added_tokens) if (content in vocab) kept.add(content);
  copy.model.vocab = {};
  const order = [...kept].sort((a, b) => vocab[a] - vocab[b]);
  for (const [id, content] of order.entries()) copy.model.vocab[content] = id;
  let next = order.length;
  for (const token of copy.added_tokens) token.id = copy.model.vocab[token.content] ?? next++;
  const idOf = Object.fromEntries(copy.added_tokens.map((token) => [token.content, token.id]));
  const processors = [copy.post_processor, ...(copy.post_processor?.processors ?? [])];
  for (const processor of processors) {
    for (const special of Object.values(processor?.special_tokens ?? {})) {
      special.ids = special.tokens.map((content) => idOf[content]);
    }
  }
  return copy;
}

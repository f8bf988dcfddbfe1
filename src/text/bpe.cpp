#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "text/unicode.h"

namespace lagoon::text {
namespace {

// Up to here scanning all pairs for the lowest rank is quicker than keeping a heap.
constexpr size_t kShortWord = 32;
// Longer words are seldom tokens, and hashing them would be in vain.
constexpr size_t kLongestLookup = 64;
// In a value of Bpe::words_, above all ids.
constexpr int32_t kOnlyWhole = 1 << 30;
constexpr size_t kCharactersPerPage = 256;
constexpr size_t kJointBits = 1 << 20;  // for pairs of characters

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Pairs of ASCII have a bit of their own.
size_t joint_of(char32_t left, char32_t right) {
  if (left < 0x80 && right < 0x80) return left << 7 | right;
  const uint64_t pair = uint64_t{left} << 32 | right;
  return (pair * 0x9E3779B97F4A7C15U >> 40) & (kJointBits - 1);
}

}  // namespace

Bpe::Bpe(const BpeModel& model)
    : byte_level_(model.byte_level),
      ignore_merges_(model.ignore_merges),
      byte_fallback_(model.byte_fallback),
      fuse_unknown_(model.fuse_unknown),
      unknown_(model.unknown),
      byte_ids_(model.byte_ids),
      table_(std::bit_ceil(2 * model.merges.size() + 2),
             Entry{.pair = 0, .rank = kNoMerge, .result = 0}),
      joints_((byte_level_ ? size_t{256} * 256 : kJointBits) / 64) {
  uint32_t rank = 0;
  for (const BpeModel::Merge& merge : model.merges) {
    const uint64_t pair = pair_key(merge.left, merge.right);
    table_[slot_of(pair)] = {.pair = pair, .rank = rank++, .result = merge.result};
  }
  int32_t last_id = 0;
  for (const auto& [word, id] : model.words) last_id = std::max(last_id, id);
  std::vector<std::string_view> word_of(static_cast<size_t>(last_id) + 1);
  for (const auto& [word, id] : model.words) word_of[static_cast<size_t>(id)] = word;
  for (const BpeModel::Merge& merge : model.merges) {
    note_joint(word_of[static_cast<size_t>(merge.left)], word_of[static_cast<size_t>(merge.right)]);
  }
  if (!byte_level_) add_characters(model);
  add_words(model);
}

void Bpe::note_joint(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) return;
  const size_t joint = byte_level_
                           ? static_cast<size_t>(static_cast<uint8_t>(left.back())) << 8 |
                                 static_cast<uint8_t>(right[0])
                           : joint_of(valid_char(left, previous_char(left, left.size())).code_point,
                                      valid_char(right, 0).code_point);
  joints_[joint / 64] |= uint64_t{1} << joint % 64;
}

void Bpe::add_characters(const BpeModel& model) {
  page_of_.resize(0x110000 / kCharactersPerPage);
  pages_.assign(kCharactersPerPage, BpeModel::kNone);
  for (const auto& [word, id] : model.words) {
    const ValidChar c = valid_char(word, 0);
    if (c.length != word.size()) continue;
    uint16_t& page = page_of_[c.code_point / kCharactersPerPage];
    if (page == 0) {
      page = static_cast<uint16_t>(pages_.size() / kCharactersPerPage);
      pages_.resize(pages_.size() + kCharactersPerPage, BpeModel::kNone);
    }
    pages_[page * kCharactersPerPage + c.code_point % kCharactersPerPage] = id;
  }
}

// Most words of a text are one token each, so looking them up saves most of the merging.
void Bpe::add_words(const BpeModel& model) {
  words_.reserve(model.words.size());
  std::vector<int32_t> ids;
  for (const auto& [word, id] : model.words) {
    bool merges_to_itself = false;
    if (word.size() <= kLongestLookup) {
      ids.clear();
      encode_part(word, ids);
      merges_to_itself = ids.size() == 1 && ids[0] == id;
    }
    if (merges_to_itself || ignore_merges_) {
      words_.insert(word, merges_to_itself ? id : id | kOnlyWhole);
    }
  }
}

size_t Bpe::slot_of(uint64_t pair) const {
  const size_t mask = table_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15U >> 32) & mask;  // Fibonacci hashing
  while (table_[slot].rank != kNoMerge && table_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

const Bpe::Entry& Bpe::find(int32_t left, int32_t right) const {
  return table_[slot_of(pair_key(left, right))];
}

int32_t Bpe::token_of_character(char32_t c) const {
  return pages_[page_of_[c / kCharactersPerPage] * kCharactersPerPage + c % kCharactersPerPage];
}

bool Bpe::may_join_bytes(uint8_t left, uint8_t right) const {
  return (joints_[(left << 8 | right) / 64] >> right % 64 & 1) != 0;
}

// Unknown characters join: several may become one token, and tokens of bytes are merged as others.
bool Bpe::may_join_characters(char32_t left, char32_t right) const {
  const size_t joint = joint_of(left, right);
  return (joints_[joint / 64] >> joint % 64 & 1) != 0 ||
         token_of_character(left) == BpeModel::kNone ||
         token_of_character(right) == BpeModel::kNone;
}

// A word as a linked list of tokens with a heap of the pairs that can merge. Entries of the heap
// whose pair has since changed are skipped when they come up.
class Bpe::LongWord {
 public:
  // The word is symbols[begin] and all after it.
  LongWord(const Bpe& bpe, const std::vector<int32_t>& symbols, size_t begin)
      : bpe_(bpe), nodes_(symbols.size() - begin) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      nodes_[i] = {.id = symbols[begin + i],
                   .previous = index - 1,
                   .next = i + 1 < nodes_.size() ? index + 1 : kNone};
    }
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      const uint32_t rank = bpe_.find(nodes_[i].id, nodes_[i + 1].id).rank;
      if (rank != kNoMerge) heap_.push_back({.rank = rank, .left = static_cast<int64_t>(i)});
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void merge_all() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate top = heap_.back();
      heap_.pop_back();
      Node& left = node(top.left);
      if (left.id == kMerged || left.next == kNone) continue;
      const Entry& merge = bpe_.find(left.id, node(left.next).id);
      if (merge.rank != top.rank) continue;
      Node& right = node(left.next);
      left.id = merge.result;
      left.next = right.next;
      right.id = kMerged;
      if (left.next != kNone) {
        node(left.next).previous = top.left;
        push_pair(top.left);
      }
      if (left.previous != kNone) push_pair(left.previous);
    }
  }

  // Writes the tokens over the symbols.
  void put(std::vector<int32_t>& symbols, size_t begin) const {
    symbols.resize(begin);
    for (const Node& n : nodes_) {
      if (n.id != kMerged) symbols.push_back(n.id);
    }
  }

 private:
  static constexpr int64_t kNone = -1;
  static constexpr int32_t kMerged = -1;  // the node is part of one to its left
  struct Node {
    int32_t id;
    int64_t previous;
    int64_t next;
  };
  struct Candidate {
    uint32_t rank;
    int64_t left;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  Node& node(int64_t index) { return nodes_[static_cast<size_t>(index)]; }

  void push_pair(int64_t left) {
    const Entry& merge = bpe_.find(node(left).id, node(node(left).next).id);
    if (merge.rank == kNoMerge) return;
    heap_.push_back({.rank = merge.rank, .left = left});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  const Bpe& bpe_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

// The word is symbols[begin] and all after it, at most kShortWord.
void Bpe::merge_short(std::vector<int32_t>& symbols, size_t begin) const {
  int32_t* const tokens = symbols.data() + begin;
  std::array<const Entry*, kShortWord> merges;  // merges[i]: of tokens i and i + 1
  size_t count = symbols.size() - begin;
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = &find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == kNoMerge) break;
    tokens[best] = merges[best]->result;
    std::copy(tokens + best + 2, tokens + count, tokens + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + count - 1, merges.begin() + best);
    --count;
    if (best + 1 < count) merges[best] = &find(tokens[best], tokens[best + 1]);
    if (best > 0) merges[best - 1] = &find(tokens[best - 1], tokens[best]);
  }
  symbols.resize(begin + count);
}

// Appends the tokens that merging begins with.
void Bpe::begin_with(std::string_view part, std::vector<int32_t>& symbols) const {
  if (byte_level_) {
    for (const char c : part) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  // The library writes an unknown token when the next known character comes, so after the bytes of
  // characters between the two.
  bool unknown_waits = false;
  for (size_t at = 0; at < part.size();) {
    const ValidChar c = valid_char(part, at);
    const std::string_view bytes = part.substr(at, c.length);
    at += c.length;
    const int32_t id = token_of_character(c.code_point);
    if (id != BpeModel::kNone) {
      if (unknown_waits) symbols.push_back(unknown_);
      unknown_waits = false;
      symbols.push_back(id);
      continue;
    }
    const auto token_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    if (byte_fallback_ && std::none_of(bytes.begin(), bytes.end(), [&](char byte) {
          return token_of(byte) == BpeModel::kNone;
        })) {
      for (const char byte : bytes) symbols.push_back(token_of(byte));
      continue;
    }
    if (unknown_ == BpeModel::kNone) continue;
    if (unknown_waits && !fuse_unknown_) symbols.push_back(unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(unknown_);
}

void Bpe::encode_part(std::string_view part, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  begin_with(part, ids);
  if (ids.size() - begin <= kShortWord) return merge_short(ids, begin);
  LongWord word(*this, ids, begin);
  word.merge_all();
  word.put(ids, begin);
}

void Bpe::encode_parts(std::string_view word, std::vector<int32_t>& ids) const {
  const auto part = [&](size_t begin, size_t end) {
    const std::string_view bytes = word.substr(begin, end - begin);
    if (bytes.size() <= kLongestLookup) {
      const auto id = words_.find(bytes);
      if (id && (*id & kOnlyWhole) == 0) return ids.push_back(*id);
    }
    encode_part(bytes, ids);
  };
  size_t begin = 0;
  if (byte_level_) {
    for (size_t at = 1; at < word.size(); ++at) {
      if (may_join_bytes(static_cast<uint8_t>(word[at - 1]), static_cast<uint8_t>(word[at]))) {
        continue;
      }
      part(begin, at);
      begin = at;
    }
  } else {
    ValidChar before = valid_char(word, 0);
    for (size_t at = before.length; at < word.size();) {
      const ValidChar c = valid_char(word, at);
      if (!may_join_characters(before.code_point, c.code_point)) {
        part(begin, at);
        begin = at;
      }
      before = c;
      at += c.length;
    }
  }
  part(begin, word.size());
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (word.size() <= kLongestLookup || ignore_merges_) {
    if (const auto id = words_.find(word)) return ids.push_back(*id & ~kOnlyWhole);
  }
  if (byte_level_ && word.size() <= kShortWord) return encode_part(word, ids);
  encode_parts(word, ids);
}

}  // namespace lagoon::text

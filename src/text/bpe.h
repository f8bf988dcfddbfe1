// Byte-pair encoding of one word: of all adjacent pairs that have a merge, the one of lowest rank,
// the leftmost of equals, becomes one token, until no pair has a merge. It begins with a token for
// each byte (byte-level) or for each character. Immutable; any thread may encode.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/string_table.h"

namespace lagoon::text {

// What a model of type BPE holds.
struct BpeModel {
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };
  static constexpr int32_t kNone = -1;

  bool byte_level = true;
  // Byte-level: the token of each byte. Else the tokens <0x00> to <0xFF>, kNone where there is
  // none.
  std::array<int32_t, 256> byte_ids{};
  // The tokens and what stands in a word for each: bytes where byte-level, else UTF-8.
  std::vector<std::pair<std::string, int32_t>> words{};
  // In order of rank; of equal pairs the last counts.
  std::vector<Merge> merges{};
  bool ignore_merges = false;  // a word that is a token is that token
  // The rest is for characters that are no tokens. All bytes of one have fallback tokens, or it is
  // the unknown token (kNone: it is left out), once for several in a row where fused.
  bool byte_fallback = false;
  int32_t unknown = kNone;
  bool fuse_unknown = false;
};

class Bpe {
 public:
  explicit Bpe(const BpeModel& model);

  // Appends the tokens of a word, which is UTF-8 unless byte-level. O(n log n) in its bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  struct Entry {
    uint64_t pair;
    uint32_t rank;  // kNoMerge: an empty slot
    int32_t result;
  };
  class LongWord;

  void note_joint(std::string_view left, std::string_view right);
  void add_characters(const BpeModel& model);
  void add_words(const BpeModel& model);

  // The merge of a pair; its rank is kNoMerge where there is none.
  const Entry& find(int32_t left, int32_t right) const;
  size_t slot_of(uint64_t pair) const;

  int32_t token_of_character(char32_t c) const;
  bool may_join_bytes(uint8_t left, uint8_t right) const;
  bool may_join_characters(char32_t left, char32_t right) const;

  void encode_parts(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_part(std::string_view part, std::vector<int32_t>& ids) const;
  void begin_with(std::string_view part, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols, size_t begin) const;

  bool byte_level_;
  bool ignore_merges_;
  bool byte_fallback_;
  bool fuse_unknown_;
  int32_t unknown_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<Entry> table_;  // open addressing; a power of two, at most half full
  // Words that are tokens. The value is the id, with kOnlyWhole where merging would give others.
  StringTable words_;
  // Where no merge joins a token that ends with one byte (character) and one that begins with
  // another, a word falls into parts there that do not affect each other: a bit for each pair of
  // bytes, or of hashes of characters.
  std::vector<uint64_t> joints_;
  // Characters: kCharactersPerPage tokens at pages_[c / kCharactersPerPage]; page 0 is empty.
  std::vector<uint16_t> page_of_;
  std::vector<int32_t> pages_;
};

}  // namespace lagoon::text

#include "text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/utf8.h"
#include "text/unicode.h"

namespace lagoon::text {
namespace {

struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t rank;  // of the canonical combining class among all classes; 0 is the class 0
};
struct Decomposition {
  char32_t character;
  uint16_t begin;  // in kDecomposed
  uint8_t length;
};
struct Composition {
  char32_t first;
  char32_t second;
  char32_t result;
};

#include "text/nfc_tables.inc"

// Hangul syllables are computed (section 3.12 of the standard).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTails = 0x11A7;  // one before the first: 0 stands for no tail
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

struct Mark {
  char32_t code_point;
  uint8_t rank;
};

uint8_t combining_rank(char32_t c) {
  const auto* range =
      std::lower_bound(std::begin(kCombining), std::end(kCombining), c,
                       [](const CombiningRange& r, char32_t value) { return r.last < value; });
  return range != std::end(kCombining) && range->first <= c ? range->rank : 0;
}

void decompose(char32_t c, std::vector<Mark>& out) {
  if (c - kSyllables < kSyllableCount) {
    const char32_t index = c - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0});
    if (index % kTailCount > 0) out.push_back({kTails + index % kTailCount, 0});
    return;
  }
  const auto* entry =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& d, char32_t value) { return d.character < value; });
  if (entry == std::end(kDecompositions) || entry->character != c) {
    out.push_back({c, combining_rank(c)});
    return;
  }
  for (size_t i = 0; i < entry->length; ++i) {
    const char32_t part = kDecomposed[entry->begin + i];
    out.push_back({part, combining_rank(part)});
  }
}

// 0 where the two do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
      second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  const auto* entry =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
                       [](const Composition& c, const std::pair<char32_t, char32_t>& value) {
                         return std::pair(c.first, c.second) < value;
                       });
  const bool found =
      entry != std::end(kCompositions) && entry->first == first && entry->second == second;
  return found ? entry->result : 0;
}

// Canonical order: runs of marks sorted by class, equals as they stand.
void sort_marks(std::vector<Mark>& text) {
  for (auto at = text.begin(); at != text.end();) {
    if (at->rank == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, text.end(), [](const Mark& m) { return m.rank == 0; });
    std::stable_sort(at, end, [](const Mark& a, const Mark& b) { return a.rank < b.rank; });
    at = end;
  }
}

// Canonical composition, in place (definition D117 of the standard).
void compose_all(std::vector<Mark>& text) {
  size_t kept = 0;
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;
  for (size_t i = 0; i < text.size(); ++i) {
    const Mark mark = text[i];
    if (starter != kNone) {
      const bool adjacent = kept == starter + 1;
      const bool blocked = !adjacent && text[kept - 1].rank >= mark.rank;
      const char32_t composed = blocked ? 0 : compose(text[starter].code_point, mark.code_point);
      if (composed != 0) {
        text[starter].code_point = composed;
        continue;
      }
    }
    if (mark.rank == 0) starter = kept;
    text[kept++] = mark;
  }
  text.resize(kept);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string normalized;
  normalized.reserve(text.size());
  std::vector<Mark> part;
  size_t copied = 0;    // up to here `normalized` is done
  size_t previous = 0;  // where the last character before `at` begins
  for (size_t at = 0; at < text.size();) {
    const ValidChar c = valid_char(text, at);
    if (c.code_point < 0x300 || is_inert_in_nfc(c.code_point)) {
      previous = at;
      at += c.length;
      continue;
    }
    // What may change begins with the inert character before and ends before the next one.
    normalized.append(text, copied, previous - copied);
    part.clear();
    size_t end = previous;
    while (end < text.size()) {
      const ValidChar next = valid_char(text, end);
      if (end >= at && end > previous && is_inert_in_nfc(next.code_point)) break;
      decompose(next.code_point, part);
      end += next.length;
    }
    sort_marks(part);
    compose_all(part);
    for (const Mark& mark : part) append_utf8(normalized, mark.code_point);
    copied = end;
    previous = end;
    at = end;
  }
  normalized.append(text, copied, text.size() - copied);
  return normalized;
}

}  // namespace lagoon::text

#include "text/char_set.h"

#include <algorithm>
#include <iterator>

namespace lagoon::text {
namespace {

constexpr uint32_t bit(Category c) {
  return 1U << static_cast<int>(c);
}

constexpr uint32_t bits(Category first, Category last) {
  return (bit(last) | (bit(last) - 1)) & ~(bit(first) - 1);
}

constexpr uint32_t kAllCategories = (1U << kCategoryCount) - 1;
constexpr uint32_t kSeparators = bits(Category::kSpaceSeparator, Category::kParagraphSeparator);

// By name, the letter alone standing for all of its kind. Cn and C are left out: what is unassigned
// depends on the version of Unicode.
constexpr struct {
  std::string_view name;
  uint32_t categories;
} kNames[] = {
    {"L", bits(Category::kUppercaseLetter, Category::kOtherLetter)},
    {"Lu", bit(Category::kUppercaseLetter)},
    {"Ll", bit(Category::kLowercaseLetter)},
    {"Lt", bit(Category::kTitlecaseLetter)},
    {"Lm", bit(Category::kModifierLetter)},
    {"Lo", bit(Category::kOtherLetter)},
    {"M", bits(Category::kNonspacingMark, Category::kEnclosingMark)},
    {"Mn", bit(Category::kNonspacingMark)},
    {"Mc", bit(Category::kSpacingMark)},
    {"Me", bit(Category::kEnclosingMark)},
    {"N", bits(Category::kDecimalNumber, Category::kOtherNumber)},
    {"Nd", bit(Category::kDecimalNumber)},
    {"Nl", bit(Category::kLetterNumber)},
    {"No", bit(Category::kOtherNumber)},
    {"P", bits(Category::kConnectorPunctuation, Category::kOtherPunctuation)},
    {"Pc", bit(Category::kConnectorPunctuation)},
    {"Pd", bit(Category::kDashPunctuation)},
    {"Ps", bit(Category::kOpenPunctuation)},
    {"Pe", bit(Category::kClosePunctuation)},
    {"Pi", bit(Category::kInitialPunctuation)},
    {"Pf", bit(Category::kFinalPunctuation)},
    {"Po", bit(Category::kOtherPunctuation)},
    {"S", bits(Category::kMathSymbol, Category::kOtherSymbol)},
    {"Sm", bit(Category::kMathSymbol)},
    {"Sc", bit(Category::kCurrencySymbol)},
    {"Sk", bit(Category::kModifierSymbol)},
    {"So", bit(Category::kOtherSymbol)},
    {"Z", kSeparators},
    {"Zs", bit(Category::kSpaceSeparator)},
    {"Zl", bit(Category::kLineSeparator)},
    {"Zp", bit(Category::kParagraphSeparator)},
    {"Cc", bit(Category::kControl)},
    {"Cf", bit(Category::kFormat)},
    {"Co", bit(Category::kPrivateUse)},
};

}  // namespace

void CharSet::add_range(char32_t first, char32_t last) {
  ranges_.emplace_back(first, last);
}

void CharSet::add_space() {
  categories_ |= kSeparators;
  add_range(0x9, 0xD);
  add(0x85);
}

void CharSet::add_non_space() {
  categories_ |= kAllCategories & ~(kSeparators | bit(Category::kControl));
  add_range(0x0, 0x8);
  add_range(0xE, 0x1F);
  add_range(0x7F, 0x84);
  add_range(0x86, 0x9F);
}

bool CharSet::add_category(std::string_view name) {
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                   [name](const auto& entry) { return entry.name == name; });
  if (found == std::end(kNames)) return false;
  categories_ |= found->categories;
  return true;
}

bool CharSet::may_share(const CharSet& other) const {
  for (char32_t c = 0; c < 0x80; ++c) {
    if (contains(c) && other.contains(c)) return true;
  }
  // Above, characters differ by their category and by the ranges they are in, and those are the
  // same from one of these on up to the next.
  std::vector<char32_t> borders = {0x80};
  for (const CharSet* set : {this, &other}) {
    for (const auto& [first, last] : set->ranges_) {
      borders.push_back(std::max<char32_t>(first, 0x80));
      borders.push_back(std::max<char32_t>(last + 1, 0x80));
    }
  }
  return std::any_of(borders.begin(), borders.end(), [&](char32_t c) {
    for (int kind = 0; kind < kCategoryCount; ++kind) {
      if (would_contain(c, kind) && other.would_contain(c, kind)) return true;
    }
    return false;
  });
}

bool CharSet::may_have_wide() const {
  return negated_ || categories_ != 0 ||
         std::any_of(ranges_.begin(), ranges_.end(),
                     [](const auto& range) { return range.second >= 0x80; });
}

bool CharSet::in_ranges(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const auto& range) { return range.first <= c && c <= range.second; });
}

}  // namespace lagoon::text

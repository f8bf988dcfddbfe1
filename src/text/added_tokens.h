// Finds added tokens in text: leftmost first, of those that begin at one place the longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lagoon::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // not empty
  bool special = false;      // left out of decoded text where that is asked for
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space on its left along
  bool rstrip = false;       // takes the white space on its right along
  bool normalized = false;   // looked for in normalized text, in what the others left
};

class AddedTokenFinder {
 public:
  // Contents differ from each other.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  // Cuts `text`, valid UTF-8, at its tokens: calls on_text(part) for what lies between them, never
  // empty, and on_token(id), in order. Where one token takes white space along with which another
  // begins, the two overlap, as in the Rust library.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const {
    Cursor cursor;
    for (Match match = next(text, cursor); match.id >= 0; match = next(text, cursor)) {
      if (cursor.taken < match.begin) {
        on_text(text.substr(cursor.taken, match.begin - cursor.taken));
      }
      on_token(match.id);
      cursor.taken = match.end;
    }
    if (cursor.taken < text.size()) on_text(text.substr(cursor.taken));
  }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;  // sorted
    int32_t token = -1;                                        // index of the token that ends here
  };
  struct Token {
    int32_t id;
    bool single_word;
    bool lstrip;
    bool rstrip;
  };
  struct Cursor {
    size_t at = 0;           // where the search goes on
    size_t taken = 0;        // the end of the last token, white space included
    size_t space_begin = 0;  // white space that has been looked at already
    size_t space_end = 0;
  };
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;  // -1: none
  };

  Match next(std::string_view text, Cursor& cursor) const;
  // The longest token that begins at `at` as an index, and its length.
  std::pair<int32_t, size_t> longest_at(std::string_view text, size_t at) const;
  const uint32_t* child_of(uint32_t node, unsigned char byte) const;

  std::vector<Token> tokens_;
  std::vector<Node> nodes_;  // a trie; the root is 0
  bool begins_token_[256] = {};
};

}  // namespace lagoon::text

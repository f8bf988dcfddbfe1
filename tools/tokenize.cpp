// Tokens of many texts, for scripts/compare_tokenizers.sh.
//
//   lagoon_tokenize TOKENIZER_JSON < LINES
// A line that is a JSON string is encoded: the ids, as JSON, are printed on a line. One like
// {"ids": [1, 2], "skip": true} is decoded, piece by piece, to a JSON string; special tokens are
// left out where "skip" says so.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer.h"

namespace {

using lagoon::text::Detokenizer;
using lagoon::text::Tokenizer;
using nlohmann::json;

void convert_lines(const Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    const json input = json::parse(line);
    if (input.is_string()) {
      fmt::print("{}\n", json(tokenizer.encode(input.get<std::string>())).dump());
      continue;
    }
    Detokenizer detokenizer(tokenizer, input.at("skip").get<bool>());
    std::string text;
    for (const auto& id : input.at("ids")) text += detokenizer.push(id.get<int32_t>());
    text += detokenizer.finish();
    fmt::print("{}\n", json(text).dump());
  }
}

int run(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: lagoon_tokenize TOKENIZER_JSON\n");
    return 2;
  }
  const auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  convert_lines(**tokenizer);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {  // a line that is no JSON
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}

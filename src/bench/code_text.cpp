#include "bench/code_text.h"

#include <fmt/core.h>

#include <array>
#include <string_view>

namespace lagoon::bench {
namespace {

using Words = std::array<std::string_view, 12>;

constexpr Words kVerbs = {"load",  "parse",  "merge", "count", "split",  "filter",
                          "write", "update", "check", "find",  "render", "collect"};
constexpr Words kNouns = {"record", "path",  "entry", "token",  "row",    "field",
                          "event",  "block", "index", "config", "result", "message"};
constexpr Words kModules = {"os",  "re",        "sys",     "json",     "time",        "math",
                            "csv", "itertools", "logging", "datetime", "collections", "functools"};
constexpr Words kAdjectives = {"valid", "empty", "new",   "old",    "sorted", "unique",
                               "first", "last",  "known", "cached", "local",  "pending"};

// Choices by SplitMix64 (see model/random_weights.cpp for the source).
class Choices {
 public:
  explicit Choices(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  std::string_view of(const Words& words) { return words[next() % words.size()]; }

 private:
  uint64_t state_;
};

std::string filtering_loop(Choices& choices, std::string_view noun) {
  const std::string_view adjective = choices.of(kAdjectives);
  return fmt::format(
      "    {adj} = []\n"
      "    for {noun} in {noun}s:\n"
      "        if not {noun} or {noun} in {adj}:\n"
      "            continue\n"
      "        if len({noun}) > {limit}:\n"
      "            raise ValueError(\"{noun} is too long: %r\" % ({noun},))\n"
      "        {adj}.append({noun})\n"
      "    return {adj}\n",
      fmt::arg("adj", adjective), fmt::arg("noun", noun), fmt::arg("limit", 1 + choices.below(99)));
}

std::string counting_loop(Choices& choices, std::string_view noun) {
  return fmt::format(
      "    counts = {{}}\n"
      "    for i, {noun} in enumerate({noun}s):\n"
      "        key = {noun}.{part}\n"
      "        counts[key] = counts.get(key, {start}) + i\n"
      "    return sorted(counts.items(), key=lambda item: item[{side}])\n",
      fmt::arg("noun", noun), fmt::arg("part", choices.of(kNouns)),
      fmt::arg("start", choices.below(10)), fmt::arg("side", choices.below(2)));
}

std::string reading_block(Choices& choices, std::string_view noun) {
  return fmt::format(
      "    try:\n"
      "        with open({noun}s, encoding=\"utf-8\") as f:\n"
      "            lines = f.read().splitlines()\n"
      "    except OSError as error:\n"
      "        log.{level}(\"cannot {verb} %s: %s\", {noun}s, error)\n"
      "        return None\n"
      "    return [line.strip() for line in lines[{skip}:] if line]\n",
      fmt::arg("noun", noun), fmt::arg("level", choices.below(2) == 0 ? "error" : "warning"),
      fmt::arg("verb", choices.of(kVerbs)), fmt::arg("skip", choices.below(4)));
}

std::string function(Choices& choices, int number) {
  const std::string_view verb = choices.of(kVerbs);
  const std::string_view noun = choices.of(kNouns);
  std::string text = fmt::format(
      "\n\ndef {}_{}s_{}({}s, {}=None):\n"
      "    \"\"\"Return the {} {}s.\"\"\"\n",
      verb, noun, number, noun, choices.of(kAdjectives), choices.of(kAdjectives), noun);
  switch (choices.below(3)) {
    case 0:
      return text + filtering_loop(choices, noun);
    case 1:
      return text + counting_loop(choices, noun);
    default:
      return text + reading_block(choices, noun);
  }
}

}  // namespace

std::string make_code(uint64_t seed, size_t bytes) {
  Choices choices(seed);
  std::string text = fmt::format("# Module {:08x}\n", choices.next() >> 32);
  for (int i = 0; i < 4; ++i) text += fmt::format("import {}\n", choices.of(kModules));
  text += "\nlog = logging.getLogger(__name__)\n";
  for (int number = 1; text.size() < bytes; ++number) text += function(choices, number);
  return text;
}

}  // namespace lagoon::bench

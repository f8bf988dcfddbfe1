// The value of --speculative-config: which draft proposes tokens, and how many at a time.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace lagoon::app {

struct SpeculativeConfig {
  std::string model;             // a directory, a bundled model, or a repository's id
  std::string revision;          // of that repository; "": main
  std::optional<int> proposals;  // num_speculative_tokens
};

// Errors: not a JSON object, a key that is not known, a key that is missing, another method than
// dflash. Whether the draft can make so many proposals is for its own config to say.
Result<SpeculativeConfig> parse_speculative_config(const std::string& json);

}  // namespace lagoon::app

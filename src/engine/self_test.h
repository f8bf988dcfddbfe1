// Whether a draft is worth its time on this target, found out before anybody is served. A draft
// that was made for another precision or revision gives the right text all the same, only slowly:
// what shows it is that the target accepts next to nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/mailbox.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace lagoon::engine {

inline constexpr int kSelfTestDrafts = 256;      // drafted tokens that are enough to judge
inline constexpr double kLeastAcceptance = 0.1;  // below, a draft does not belong to the target

struct SelfTest {
  int drafted = 0;           // tokens
  int accepted = 0;          // of them
  int steps = 0;             // that verified drafts
  double plain_seconds = 0;  // of a token without drafts
  double draft_seconds = 0;  // of a token with them

  double acceptance() const;       // 0..1
  double tokens_per_step() const;  // the one that the target adds included
  double gain() const;             // speed with drafts / speed without
  // Fewer drafts are no judgement: a context may be too short to make them.
  bool failed() const { return drafted >= kSelfTestDrafts && acceptance() < kLeastAcceptance; }
};

// "24 of 66 drafts accepted (36.4 %), 2.09 tokens per step, 1.31 times the speed without"; of none,
// that it was not tried.
std::string describe(const SelfTest& test);

// Beginnings of programs, as the tokenizer sees them.
std::vector<std::vector<int32_t>> self_test_prompts(const text::Tokenizer& tokenizer);

// Continues the prompts greedily in slot 0 with `k` proposals a step, until kSelfTestDrafts tokens
// are drafted, or a quarter of them that is accepted beyond doubt. Where a step has no rows for
// `k`, it is as many as there are. `max_length`: positions that the model was loaded for; what it
// was made for may be more. `told`, if there is one, hears the share of the work that is done. The
// model must have a draft, and nothing may run on it. Error: the model's failure.
Result<SelfTest> test_draft(model::Model& model, std::span<const std::vector<int32_t>> prompts,
                            int k, int64_t max_length, const Now& now,
                            const std::function<void(double)>& told = nullptr);

}  // namespace lagoon::engine

// Whether a draft was made for a target of this precision. Drafts of all precisions have the same
// config and the same tensors; what tells them apart is the name they are published under.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/config.h"
#include "plan/inventory.h"

namespace lagoon::plan {

// The precision of its target that a draft's directory is named after: "Laguna-S-2.1-DFlash-NVFP4",
// also as a folder above (models--poolside--.../snapshots/...). The draft of a BF16 target is
// published without one. None: the name does not say.
std::optional<std::string> named_precision(const std::string& draft_directory);

// One sentence where the draft is named after another precision than the target has. What the name
// does not say is left to the self-test.
Result<void> check_precision(const Inventory& target, const std::string& target_directory,
                             const std::string& draft_directory);

// Why a draft that fits by its shapes is not accepted: half a sentence.
std::string likely_cause(const std::string& draft_directory, const checkpoint::DraftConfig& draft,
                         const Inventory& target);

}  // namespace lagoon::plan

// For the tests of this folder: the published configs, and what their checkpoints hold.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "plan/inventory.h"

namespace lagoon::plan {

// An entry of quantization_config.ignore, as the revision of 2026-08-01 has it.
inline constexpr std::string_view kLaterRevision =
    R"("re:.*layers\\.4[0-7]\\.mlp\\.experts\\..*",)";

struct Published {
  checkpoint::TargetConfig target;
  checkpoint::DraftConfig draft;
  Inventory weights;
  Inventory draft_weights;
};

// The text of a file in tests/fixtures/configs.
std::string fixture(const std::string& name);

// Laguna-S-2.1-NVFP4 and its draft; `ignored` stands in front of the entries of `ignore`.
Published full_size(std::string_view ignored = {});

}  // namespace lagoon::plan

// For the tests of this folder: the published configs, and what their checkpoints hold.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
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

inline std::string fixture(const std::string& name) {
  const std::string path = std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Laguna-S-2.1-NVFP4 and its draft; `ignored` stands in front of the entries of `ignore`.
inline Published full_size(std::string_view ignored = {}) {
  Published published;
  std::string json = fixture("laguna-s-2.1-nvfp4/config.json");
  const size_t at = json.find('[', json.find("\"ignore\""));
  EXPECT_NE(at, std::string::npos);
  json.insert(at + 1, ignored);
  const std::string draft_json = fixture("laguna-s-2.1-dflash-nvfp4/config.json");
  const auto target = checkpoint::parse_target_config(json, "target/config.json");
  const auto draft = checkpoint::parse_draft_config(draft_json, "draft/config.json");
  EXPECT_TRUE(target.ok() && draft.ok());
  published.target = *target;
  published.draft = *draft;
  const auto weights = expected_inventory(*target, json, "target/config.json");
  const auto draft_weights = expected_inventory(*draft, draft_json, "draft/config.json");
  EXPECT_TRUE(weights.ok() && draft_weights.ok());
  published.weights = *weights;
  published.draft_weights = *draft_weights;
  return published;
}

}  // namespace lagoon::plan

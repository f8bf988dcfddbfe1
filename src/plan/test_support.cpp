#include "plan/test_support.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace lagoon::plan {

std::string fixture(const std::string& name) {
  const std::string path = std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Published full_size(std::string_view ignored) {
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

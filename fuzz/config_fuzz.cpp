// config.json as a model repository may hold it: read as a target's and as a draft's.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lagoon::checkpoint;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto target = parse_target_config(json, "config.json");
  const auto draft = parse_draft_config(json, "config.json");
  // What the rest of the program divides by or allocates by must have been checked.
  if (target.ok()) {
    const TargetConfig& config = target.value();
    CHECK(config.vocab > 0 && config.hidden > 0 && config.kv_heads > 0 && config.head_dim > 0);
    CHECK(!config.layers.empty() && config.max_positions > 0);
    for (const LayerConfig& layer : config.layers) {
      CHECK(layer.heads > 0 && layer.heads % config.kv_heads == 0);
      CHECK(!layer.sliding || config.window > 0);
      CHECK(!layer.sparse || (config.top_k > 0 && config.top_k <= config.experts));
    }
  }
  if (draft.ok()) {
    const DraftConfig& config = draft.value();
    CHECK(config.layers > 0 && config.heads > 0 && config.kv_heads > 0 && config.block_size > 1);
    CHECK(!config.tap_layers.empty());
    if (target.ok()) (void)check_pair(target.value(), config);
  }
  return 0;
}

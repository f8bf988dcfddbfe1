// JSON files as a model repository may hold them: config.json, read as a target's and as a draft's,
// with its quantization_config, and model.safetensors.index.json.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "checkpoint/config.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_index.h"

namespace {

using lagoon::checkpoint::QuantizationScheme;
using lagoon::checkpoint::Storage;

void ask_for_storage(std::string_view json) {
  const auto scheme = QuantizationScheme::parse(json, "config.json");
  if (!scheme.ok()) return;
  // A name of more than the format's own length, since expressions are matched against it.
  for (const std::string& module :
       {std::string("lm_head"), "model.layers.3.mlp.experts.17.up_proj" + std::string(40, 'x')}) {
    const Storage storage = scheme->storage(module);
    CHECK(storage == Storage::kPlain || storage == Storage::kFP8 || storage == Storage::kNVFP4);
  }
}

// Shards are files of the folder, entries sorted, each found again.
void read_index(std::string_view json) {
  const auto files = lagoon::checkpoint::parse_weight_index(json, "index.json");
  if (!files.ok()) return;
  CHECK(files->indexed && !files->entries.empty());
  for (const std::string& shard : files->shards)
    CHECK(shard.find('/') == std::string::npos && shard.ends_with(".safetensors"));
  for (const auto& entry : files->entries)
    CHECK(entry.shard < files->shards.size() && files->find(entry.tensor) == &entry);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lagoon::checkpoint;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  ask_for_storage(json);
  read_index(json);
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

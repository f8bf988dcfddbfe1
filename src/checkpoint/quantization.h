// What quantization_config says of a module's weight. Loading does not ask it (tensors say
// themselves how they are stored); it decides how a checkpoint that is made from a config stores
// them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::checkpoint {

// kFP8: e4m3 codes and a scale per block of [128, 128]. kNVFP4: e2m1 codes and an e4m3 scale per 16
// columns.
enum class Storage { kPlain, kFP8, kNVFP4 };

// Rules as compressed-tensors has them: the first of `config_groups` whose `targets` name the
// module (or its class, Linear) decides, unless `ignore` names it. A name that begins with "re:" is
// a regular expression that matches from the start of the module's name. Immutable; any thread.
class QuantizationScheme {
 public:
  // Of a config.json, target or draft; without a quantization_config everything is plain. Errors
  // name `path`: rules that cannot be read, a format or block size other than Storage's.
  static Result<QuantizationScheme> parse(std::string_view json, const std::string& path);
  ~QuantizationScheme();
  QuantizationScheme(QuantizationScheme&&) noexcept;
  QuantizationScheme& operator=(QuantizationScheme&&) noexcept;

  // `module` is a linear layer's name, "model.layers.3.mlp.experts.0.up_proj".
  Storage storage(std::string_view module) const;
  // Whether the checkpoint has scales for an FP8 key-value cache.
  bool has_cache_scales() const;

 private:
  struct Rules;
  explicit QuantizationScheme(std::unique_ptr<const Rules> rules);
  std::unique_ptr<const Rules> rules_;
};

}  // namespace lagoon::checkpoint

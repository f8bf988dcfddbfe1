// Random weights for a model of any config, in the published format: what a tensor is called and
// how it is stored comes from the walk of model/weights.cpp and from quantization_config; its bytes
// are a function of (seed, name, place) alone, so a checkpoint on disk (lagoon synth) and a model
// made in memory (--load-format dummy) are the same, and the first layers do not depend on how many
// follow.
//
// The weights are scaled so that activations neither explode nor vanish: every linear layer keeps
// the size of what it reads, so each half of a layer adds about as much to the residual as the
// embedding began with, and it grows with the root of the depth. Attention scores are spread widely
// enough that a row looks at few positions, so that rows differ though their tokens do not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/quantization.h"
#include "numeric/dtype.h"

namespace lagoon::model {

struct RandomOptions {
  uint64_t seed = 0;
  // > 0: the share of its experts that a row has in common with another row on average, above
  // top_k / experts and at most 0.95. Router biases make some experts popular; the router's own
  // weights still tell rows apart. 0: routers without bias, rows choose independently.
  double routing_overlap = 0;
};

// A tensor of random numbers.
struct RandomTensor {
  enum class Kind {
    kNormal,       // `scale` times about N(0, 1), BF16 or F32
    kAroundScale,  // `scale` times U(0.8, 1.2), BF16
    kConstant,     // `scale`, BF16 or F32
    kE2M1,         // pairs of codes, as quantising about N(0, 1) by blocks gives them
    kE4M3,         // codes of 64 * N(0, 1)
    kBlockScale,   // e4m3 scales from 96 to 352
  };
  std::string name;
  numeric::DType dtype = numeric::DType::kBF16;
  std::vector<int64_t> shape;
  Kind kind = Kind::kNormal;
  float scale = 1;

  uint64_t bytes() const;
};

// The key of a tensor's numbers (numeric/random_numbers.h).
uint64_t random_key(const std::string& name, uint64_t seed);

// Fills `into` with the tensor's bytes from `first_byte` on; both are multiples of 8 bytes, but for
// the tensor's end. Any thread.
void fill_random(const RandomTensor& tensor, uint64_t seed, uint64_t first_byte,
                 std::span<std::byte> into);

// Every tensor of a checkpoint, in the order of the walk. Errors: the config asks for a storage
// that Lagoon cannot read, or a routing_overlap that no bias gives.
Result<std::vector<RandomTensor>> random_target(const checkpoint::TargetConfig& config,
                                                const checkpoint::QuantizationScheme& scheme,
                                                const RandomOptions& options);
Result<std::vector<RandomTensor>> random_draft(const checkpoint::DraftConfig& config,
                                               const checkpoint::QuantizationScheme& scheme);

}  // namespace lagoon::model

#include "kernels/cpu/vectors.h"

#include "base/check.h"
#include "kernels/cpu/instruction_set.h"

namespace lagoon::kernels::cpu {

const Vectors& vectors() {
  switch (selected()) {
    case InstructionSet::kPortable:
      return kPortableVectors;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return kAvx2Vectors;
    case InstructionSet::kAvx512:
    case InstructionSet::kAvx512Bf16:
      return kAvx512Vectors;
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
    case InstructionSet::kNeonBf16:
      return kNeonVectors;
#endif
    default:
      CHECK(false);
  }
}

int64_t attention_scratch(int rows) {
  return int64_t{rows} * kMaxAttentionHeads * (1 + kTilePositions);
}

}  // namespace lagoon::kernels::cpu

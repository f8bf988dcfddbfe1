// Which instructions the CPU backend's products use: chosen once, at run time.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace lagoon::kernels::cpu {

// All but the BF16 dot products give the same bits. Those multiply pairs of BF16 numbers and have
// sums of their own; rows of activations that BF16 cannot hold are multiplied as without them.
enum class InstructionSet {
  kPortable,    // plain C++
  kAvx2,        // AVX2 and FMA
  kAvx512,      // AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // kAvx512 and VDPBF16PS
  kNeon,        // aarch64
  kNeonBf16,    // kNeon and BFDOT
};

std::string_view name_of(InstructionSet set);

// What this processor and system can run, the preferred one last.
std::span<const InstructionSet> available();

// `name`: "portable", "avx2", "avx512", "avx512bf16", "neon", "neonbf16". Errors: a name that is
// none of these, a set that this processor cannot run.
Result<InstructionSet> instruction_set(std::string_view name);

// The set in use: the last one selected, else the preferred one.
InstructionSet selected();

// Not while a product runs. A set that is not available is a bug.
void select(InstructionSet set);

// Selects what the environment variable LAGOON_CPU names, where it is set and not empty. Errors: as
// for instruction_set().
Result<void> select_from_environment();

}  // namespace lagoon::kernels::cpu

#include "kernels/cpu/instruction_set.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "base/check.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lagoon::kernels::cpu {
namespace {

struct Name {
  InstructionSet set;
  std::string_view name;
};
constexpr Name kNames[] = {
    {InstructionSet::kPortable, "portable"}, {InstructionSet::kAvx2, "avx2"},
    {InstructionSet::kAvx512, "avx512"},     {InstructionSet::kAvx512Bf16, "avx512bf16"},
    {InstructionSet::kNeon, "neon"},         {InstructionSet::kNeonBf16, "neonbf16"},
};

std::vector<InstructionSet> detect() {
  std::vector<InstructionSet> sets = {InstructionSet::kPortable};
#if defined(__x86_64__)
  // These ask the operating system too, whether it saves the registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return sets;
  sets.push_back(InstructionSet::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return sets;
  }
  sets.push_back(InstructionSet::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) sets.push_back(InstructionSet::kAvx512Bf16);
#elif defined(__aarch64__)
  sets.push_back(InstructionSet::kNeon);
  if ((getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0) sets.push_back(InstructionSet::kNeonBf16);
#endif
  return sets;
}

std::atomic<InstructionSet>& current() {
  static std::atomic<InstructionSet> set = available().back();
  return set;
}

bool is_available(InstructionSet set) {
  for (const InstructionSet one : available()) {
    if (one == set) return true;
  }
  return false;
}

std::string names_of_available() {
  std::vector<std::string_view> names;
  for (const InstructionSet set : available()) names.push_back(name_of(set));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view name_of(InstructionSet set) {
  for (const Name& name : kNames) {
    if (name.set == set) return name.name;
  }
  CHECK(false);
}

std::span<const InstructionSet> available() {
  static const std::vector<InstructionSet> kSets = detect();
  return kSets;
}

Result<InstructionSet> instruction_set(std::string_view name) {
  for (const Name& known : kNames) {
    if (known.name != name) continue;
    if (is_available(known.set)) return known.set;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("this processor cannot run the instruction set '{}': it can run {}",
                             name, names_of_available())};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is not an instruction set: this processor can run {}", name,
                           names_of_available())};
}

InstructionSet selected() {
  return current().load(std::memory_order_relaxed);
}

void select(InstructionSet set) {
  CHECK(is_available(set));
  current().store(set, std::memory_order_relaxed);
}

Result<void> select_from_environment() {
  const char* name = std::getenv("LAGOON_CPU");
  if (name == nullptr || *name == 0) return {};
  const Result<InstructionSet> set = instruction_set(name);
  if (!set.ok()) {
    return Error{set.error().code,
                 fmt::format("the environment variable LAGOON_CPU: {}", set.error().message)};
  }
  select(*set);
  return {};
}

}  // namespace lagoon::kernels::cpu

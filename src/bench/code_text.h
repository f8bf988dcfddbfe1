// Text to measure with: source code of no meaning, made from a seed, so that a figure can be
// reproduced without a corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lagoon::bench {

// At least `bytes` bytes of a Python module, and no more than a function longer. The same arguments
// give the same text on every machine; two seeds differ from the first line on, so that no server
// can answer from what it has cached of another prompt. A longer text begins with the shorter one.
std::string make_code(uint64_t seed, size_t bytes);

}  // namespace lagoon::bench

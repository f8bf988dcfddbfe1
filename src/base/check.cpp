#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lagoon {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s (this is a bug in Lagoon)\n", file, line,
               condition);
  std::abort();
}

}  // namespace lagoon

// CHECK(condition): for what cannot happen unless Lagoon itself is wrong. It is on in every build,
// prints file, line and condition to stderr, and aborts. What users or files can cause is an Error.
#pragma once

namespace lagoon {

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace lagoon

#define CHECK(condition)                             \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::lagoon::check_failed(__FILE__, __LINE__, #condition))

// CHECK(condition): for what cannot happen unless Lagoon itself is wrong. It is on in every build,
// prints file, line and condition to stderr, and aborts. What users or files can cause is an Error.
#pragma once

namespace lagoon {

// Called with a sentence on the thread whose CHECK failed, or that was left by an exception, before
// the program is aborted; it may end the program itself. Once it is set it stays; null takes it
// back.
using FatalHandler = void (*)(const char* sentence);
void set_fatal_handler(FatalHandler handler);

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace lagoon

#define CHECK(condition)                             \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::lagoon::check_failed(__FILE__, __LINE__, #condition))

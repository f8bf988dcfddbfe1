#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace lagoon {
namespace {

std::atomic<FatalHandler> fatal_handler{nullptr};

// An exception that nobody caught: no more memory, most likely.
[[noreturn]] void on_terminate() {
  char sentence[512] = "an unexpected end";
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& exception) {
    std::snprintf(sentence, sizeof sentence, "an error that nothing expected: %s",
                  exception.what());
  } catch (...) {
    std::snprintf(sentence, sizeof sentence, "an error that nothing expected");
  }
  std::fprintf(stderr, "%s\n", sentence);
  if (const FatalHandler handler = fatal_handler.load()) handler(sentence);
  std::abort();
}

}  // namespace

void set_fatal_handler(FatalHandler handler) {
  fatal_handler.store(handler);
  std::set_terminate(on_terminate);
}

void check_failed(const char* file, int line, const char* condition) {
  char sentence[512];
  std::snprintf(sentence, sizeof sentence, "%s:%d: CHECK failed: %s (this is a bug in Lagoon)",
                file, line, condition);
  std::fprintf(stderr, "%s\n", sentence);
  if (const FatalHandler handler = fatal_handler.load()) handler(sentence);
  std::abort();
}

}  // namespace lagoon

// lagoon: the program. Errors are one sentence on stderr and exit code 1 (2: a wrong command line).
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "app/bench.h"
#include "app/generate.h"
#include "app/inspect.h"
#include "app/options.h"
#include "app/serve.h"
#include "app/synth.h"

namespace {

int report(const lagoon::Error& error, int code) {
  fmt::print(stderr, "lagoon: {}\n", error.message);
  return code;
}

lagoon::Result<void> execute(const lagoon::app::ServeOptions& options) {
  return lagoon::app::serve(options);
}
lagoon::Result<void> execute(const lagoon::app::GenerateOptions& options) {
  return lagoon::app::generate(options);
}
lagoon::Result<void> execute(const lagoon::app::InspectOptions& options) {
  return lagoon::app::inspect(options);
}
lagoon::Result<void> execute(const lagoon::app::BenchOptions& options) {
  return lagoon::app::bench(options);
}
lagoon::Result<void> execute(const lagoon::app::SynthOptions& options) {
  return lagoon::app::synth(options);
}
lagoon::Result<void> execute(const lagoon::app::Information& information) {
  fmt::print("{}", information.text);
  return {};
}

int run(int argc, char** argv) {
  namespace app = lagoon::app;
  const auto command = app::parse_command_line(argc, argv, environ);
  if (!command.ok()) return report(command.error(), 2);
  const auto done = std::visit([](const auto& options) { return execute(options); }, *command);
  return done.ok() ? 0 : report(done.error(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  // Libraries report some faults of the world by throwing: no more memory, threads or disk.
  try {
    return run(argc, argv);
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "lagoon: %s\n", thrown.what());
    return 1;
  }
}

// Where the options of `lagoon serve` come from besides the command line: a TOML file and variables
// of the environment; and options that hold JSON, given by key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lagoon::app {

// One option as a file or the environment has it.
struct Setting {
  std::string name;                 // "--max-model-len"
  std::vector<std::string> values;  // more than one of lists only; of a flag "true" or "false"
};

// The top level of a TOML file: keys are options without their dashes ('_' counts as '-'), arrays
// are lists, tables become JSON. Errors name the file, and the line where it is not TOML.
Result<std::vector<Setting>> read_config_file(const std::string& path);

// The variables LAGOON_... that are options of the command. Values of lists are separated by
// commas. `remarks` gets a line for those that mean nothing, and for vLLM's own, which are ignored;
// VLLM_API_KEY is read where neither the command line nor LAGOON_API_KEY gives keys.
std::vector<Setting> read_environment(const CLI::App& command, const char* const* environment,
                                      std::vector<std::string>& remarks);

// The command line (its first word is the command) with what the other sources add to it. What a
// source gives goes before the same option of one that stands earlier in the list; the command line
// goes before all. Dotted options (--speculative-config.method dflash) are folded into the JSON of
// their option. Errors: a name that is no option (the nearest is told), several values for an
// option that takes one, JSON that is no object.
Result<std::vector<std::string>> merge_sources(const CLI::App& command,
                                               std::vector<std::string> arguments,
                                               const std::vector<std::vector<Setting>>& sources);

}  // namespace lagoon::app

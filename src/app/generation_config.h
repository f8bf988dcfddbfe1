// What generation_config.json and the options about it say about sampling.
#pragma once

#include <string>
#include <vector>

#include "app/options.h"
#include "base/result.h"
#include "checkpoint/model_dir.h"
#include "kernels/ops.h"

namespace lagoon::app {

// What generation_config.json of a model directory says about sampling; where it does not say,
// temperature 1 and no cut. `json` is "" where there is no such file. `ignored` gets the names of
// what it asks for and this version does not do.
struct SamplingDefaults {
  kernels::Sampling sampling;
  std::string ignored;
};
Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path);

// The same with --override-generation-config on top: a JSON object of values that replace the
// file's. What this version does not do is an error there.
Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path,
                                                 const std::string& overriding);

struct ModelSampling {
  kernels::Sampling sampling;
  std::vector<std::string> lines;  // what a start says of it
};
// Of the file that --generation-config asks for, with --override-generation-config. Errors: a file
// that cannot be read, and those of parse_generation_config().
Result<ModelSampling> read_sampling_defaults(const ModelOptions& options,
                                             const checkpoint::ModelDir& target);

}  // namespace lagoon::app

// Looks at a model that may not be whole: a directory that is still downloaded, one with wrong
// files, a config.json alone. What ModelDir::open() refuses is told here, and the rest of it too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/inventory.h"

namespace lagoon::plan {

struct ScannedModel {
  std::string path;         // the directory, or the config.json that was given
  std::string config_path;  // for errors
  std::string config_json;
  bool is_draft = false;
  // Of the headers where everything is there, else what the config says there should be.
  Inventory inventory;

  enum class State { kComplete, kIncomplete, kConfigOnly };
  State state = State::kConfigOnly;
  // kIncomplete:
  std::string problem;               // the first thing that is wrong, with a remedy
  int files_expected = 0;            // of weights; 0 where nothing says how many
  int files_present = 0;             // whole ones
  int64_t bytes_present = 0;         // of weights, partial downloads included
  std::vector<std::string> missing;  // files of weights
  std::vector<std::string> partial;  // files of downloads in progress

  // Share of the bytes that are there, 0..100; rounded down.
  int percent() const;
};

// `name`: a config.json, a directory, or what checkpoint::find_model() knows, `revision` being that
// of a repository in the hub cache. Errors: nothing there, a config that cannot be read or is no
// model of ours, a revision of what has none.
Result<ScannedModel> scan_model(const std::string& name, const std::string& revision = "");

}  // namespace lagoon::plan

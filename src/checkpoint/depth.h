// Configs of models with other numbers of layers than the published ones.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::checkpoint {

// A target's config.json cut to its first `layers` layers; other fields, unknown ones too, stay as
// they are and in their order. `path` names it in errors: more layers than it has, or what
// parse_target_config() would say of it.
Result<std::string> cut_target(std::string_view json, const std::string& path, int layers);

// A draft's config.json made to belong to a target of `layers` layers: as many taps as before, or
// as there are layers, at the same relative depths. Errors as above.
Result<std::string> fit_draft(std::string_view json, const std::string& path, int layers);

}  // namespace lagoon::checkpoint

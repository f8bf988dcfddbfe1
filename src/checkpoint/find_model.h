// Where bundled models lie, apart from find_model() so that the places can be chosen.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lagoon::checkpoint {

// models/ in the program's own directory, in four levels of parents, and share/lagoon/models beside
// it, as paths that need not exist.
std::vector<std::string> bundled_model_places(const std::string& program_directory);

// A directory as given, else `name` in the first place that has it, else, where it is a
// repository's id, its snapshot in the hub cache.
Result<std::string> find_model_in(const std::string& name, const std::vector<std::string>& places,
                                  const std::string& hub_cache = "",
                                  const std::string& revision = "");

}  // namespace lagoon::checkpoint

// Which published model a checkpoint is, from its config and its tensors; names do not count.
#pragma once

#include <string>

#include "checkpoint/config.h"
#include "plan/inventory.h"

namespace lagoon::plan {

// "Laguna S 2.1", "Laguna XS.2" ...; of sizes that are not published "Laguna of 8 layers, 256
// wide".
std::string family_of(const checkpoint::TargetConfig& config);

// What is known of the revision by what its tensors are: "NVFP4 experts in all layers, as revision
// 07614121b3 of 2026-07-22". A revision that is known to be a poor choice is told with a better
// one.
std::string revision_class(const checkpoint::TargetConfig& config, const Inventory& weights);

}  // namespace lagoon::plan

// The Hugging Face client's cache on this machine: `hf download OWNER/NAME` puts a repository there
// as models--OWNER--NAME, with blobs/, snapshots/<commit>/ of links to them, and refs/<branch>,
// files that hold a commit. Nothing is ever downloaded. Layout:
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::checkpoint {

// "poolside/Laguna-S-2.1-NVFP4": two names with a slash between them.
bool is_repository_id(std::string_view name);

// HF_HUB_CACHE, else hub/ in HF_HOME, else ~/.cache/huggingface/hub; "" where there is no home.
std::string hub_cache_directory();

// The snapshot of a repository in `cache`. `revision` is a branch or tag, a commit or the first
// seven or more digits of one; "" is main, else the revision that download_command() would name,
// else the only one that is there. The error has that command.
Result<std::string> find_in_hub_cache(const std::string& repository, const std::string& revision,
                                      const std::string& cache);

// The line that downloads a repository: of `revision`, or where that is "" of the one that is known
// to be good, if there is one.
std::string download_command(const std::string& repository, const std::string& revision);

// What a directory of the cache is a snapshot of; nothing where it is none.
struct HubSnapshot {
  std::string repository;
  std::string commit;
};
std::optional<HubSnapshot> hub_snapshot_of(const std::string& directory);

}  // namespace lagoon::checkpoint

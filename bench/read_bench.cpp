// How fast the weights of a model directory come from the disk when nothing is done with them: by
// each way of reading, cold. Usage: read_bench DIRECTORY
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/page_cache.h"
#include "checkpoint/weight_reader.h"

namespace {

using namespace lagoon;
using checkpoint::ModelDir;
using checkpoint::Piece;
using checkpoint::Pieces;
using checkpoint::ReadOptions;
using checkpoint::SafetensorsFile;
using checkpoint::WeightReader;

// Files of the directory, each once.
std::vector<const SafetensorsFile*> files_of(const ModelDir& model) {
  std::vector<const SafetensorsFile*> files;
  for (const checkpoint::Tensor& tensor : model.tensors())
    if (std::find(files.begin(), files.end(), tensor.file) == files.end())
      files.push_back(tensor.file);
  return files;
}

uint64_t cached_bytes(const ModelDir& model) {
  uint64_t pages = 0;
  for (const SafetensorsFile* file : files_of(model)) {
    const auto resident = checkpoint::resident_pages(file->mapping(), 0, file->mapping().size());
    pages += static_cast<uint64_t>(std::count(resident.begin(), resident.end(), 1));
  }
  return pages * checkpoint::kPageBytes;
}

void leave_cache(const ModelDir& model) {
  for (const SafetensorsFile* file : files_of(model)) {
    const auto input = checkpoint::InputFile::open(file->path());
    if (!input.ok()) continue;
    (void)::fdatasync(input->descriptor());
    (void)::posix_fadvise(input->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

Result<void> measure(const ModelDir& model, const ReadOptions& options) {
  // A loader's walk goes by name, about.
  std::vector<Pieces> order;
  uint64_t bytes = 0;
  for (const checkpoint::Tensor& tensor : model.tensors()) {
    order.push_back({{tensor.file, tensor.info->offset, tensor.info->bytes}});
    bytes += tensor.info->bytes;
  }
  leave_cache(model);
  const uint64_t before = cached_bytes(model);
  const auto start = std::chrono::steady_clock::now();
  LAGOON_ASSIGN(const auto reader, WeightReader::start(order, options));
  for (const Pieces& pieces : order) LAGOON_RETURN_IF_ERROR(reader->take(pieces));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{:<34} {:6.2f} GB in {:6.2f} s: {:.2f} GB/s; in the page cache {:.1f} MB, then {:.1f} MB\n",
      reader->method(), bytes / 1e9, seconds.count(), bytes / 1e9 / seconds.count(), before / 1e6,
      cached_bytes(model) / 1e6);
  return {};
}

// The other bound of a load: what the system needs to give so much memory for the first time. (On a
// virtual machine it may have to ask its host.)
void measure_memory(uint64_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{:<34} {:6.2f} GB in {:6.2f} s: {:.2f} GB/s\n", "fresh memory", bytes / 1e9,
             seconds.count(), bytes / 1e9 / seconds.count());
  ::munmap(memory, bytes);
}

Result<void> measure_all(const std::string& directory) {
  LAGOON_ASSIGN(const ModelDir model, ModelDir::open(directory));
  measure_memory(model.weight_bytes());
  for (const bool direct : {true, false})
    for (const bool uring : {true, false})
      LAGOON_RETURN_IF_ERROR(measure(model, {.direct = direct, .uring = uring}));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: read_bench DIRECTORY\n");
    return 2;
  }
  const auto measured = measure_all(argv[1]);
  if (measured.ok()) return 0;
  fmt::print(stderr, "{}\n", measured.error().message);
  return 1;
}

// Reading the files of a model directory: regular files only, read whole or in parts. What is
// commonly wrong with a downloaded file (missing, a directory, empty, a Git LFS pointer) is said
// here, once, for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::checkpoint {

// A regular file open for reading; closed when destroyed. Reading is safe from several threads.
class InputFile {
 public:
  // Errors name the file: kNotFound if it is not there; not a regular file, empty, a Git LFS
  // pointer, or not readable.
  static Result<InputFile> open(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  // Bytes when it was opened.
  uint64_t size() const { return size_; }
  // Fills `into` from `offset`; an error if the file ends before.
  Result<void> read(uint64_t offset, std::span<char> into) const;

 private:
  InputFile() = default;
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The whole text of a file of at most `max_bytes`.
Result<std::string> read_whole_file(const std::string& path, uint64_t max_bytes);

// `text` in double quotes for an error message: control characters are shown as \xNN and the middle
// of what is longer than 160 bytes is left out.
std::string in_quotes(std::string_view text);

}  // namespace lagoon::checkpoint

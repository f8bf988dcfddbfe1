// For the tests of this folder: temporary directories, files with exactly the bytes that a test
// wants, configs with a field changed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::checkpoint {

// A directory that is deleted with everything in it.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lagoon-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path. What was there, a link as well, is replaced.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::filesystem::remove(file(name));
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// 8 bytes, little-endian.
inline std::string length_field(uint64_t length) {
  std::string field;
  for (int i = 0; i < 8; ++i) field += static_cast<char>((length >> (8 * i)) & 0xffu);
  return field;
}

// The bytes of a safetensors file with this header text.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return length_field(header.size()) + std::string(header) + std::string(data);
}

// `text` with `from`, which must be in it once, replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at == std::string::npos) return text;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from << " is there more than once";
  return text.replace(at, from.size(), to);
}

// The message of the error that a result must be.
template <typename T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? std::string("(no error)") : result.error().message;
}

}  // namespace lagoon::checkpoint

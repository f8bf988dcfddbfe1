#include "checkpoint/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/utf8.h"

namespace lagoon::checkpoint {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs";
// A pointer is shorter (git-lfs, docs/spec.md); of larger files nothing is read here, so that
// nothing of them comes into the page cache.
constexpr uint64_t kLfsPointerBytes = 1024;

std::string error_text(int error) {
  return std::generic_category().message(error);
}

// A file that git left as a pointer is a short text that begins with the same words.
Result<void> refuse_lfs_pointer(const InputFile& file) {
  if (file.size() < kLfsPointer.size() || file.size() >= kLfsPointerBytes) return {};
  std::string start(kLfsPointer.size(), '\0');
  LAGOON_RETURN_IF_ERROR(file.read(0, start));
  if (start != kLfsPointer) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("{} is a Git LFS pointer, not the file itself: run `git lfs pull` in its "
                  "folder or download the file",
                  file.path())};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // Without O_NONBLOCK opening a named pipe would wait for a writer.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) {
    const int error = errno;
    if (error == ENOENT) return Error{ErrorCode::kNotFound, fmt::format("{} is missing", path)};
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} cannot be opened: {}", path, error_text(error))};
  }
  struct stat status = {};
  if (::fstat(file.descriptor_, &status) != 0)
    return Error{ErrorCode::kInternal,
                 fmt::format("{} cannot be examined: {}", path, error_text(errno))};
  if (S_ISDIR(status.st_mode))
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a directory, not a file", path)};
  if (!S_ISREG(status.st_mode))
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a regular file", path)};
  // io_uring of older systems would not wait for the disk either.
  if (::fcntl(file.descriptor_, F_SETFL, O_RDONLY) != 0)
    return Error{ErrorCode::kInternal,
                 fmt::format("{} cannot be examined: {}", path, error_text(errno))};
  if (status.st_size == 0)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is empty: download it again", path)};
  file.size_ = static_cast<uint64_t>(status.st_size);
  LAGOON_RETURN_IF_ERROR(refuse_lfs_pointer(file));
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

Result<void> InputFile::read(uint64_t offset, std::span<char> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(descriptor_, into.data() + done, into.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{ErrorCode::kInternal,
                   fmt::format("{} cannot be read: {}", path_, error_text(errno))};
    if (n == 0)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} ends at byte {}: it became shorter while it was read", path_,
                               offset + done)};
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<std::string> read_whole_file(const std::string& path, uint64_t max_bytes) {
  LAGOON_ASSIGN(const InputFile file, InputFile::open(path));
  if (file.size() > max_bytes)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has {} bytes, more than the {} that such a file may have", path,
                             file.size(), max_bytes)};
  std::string text(file.size(), '\0');
  LAGOON_RETURN_IF_ERROR(file.read(0, text));
  return text;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 160;
  if (text.size() <= kShown) return fmt::format("\"{}\"", escaped(text));
  const std::string_view head = utf8_prefix(text, kShown - 40);
  const std::string_view tail = text.substr(utf8_prefix(text, text.size() - 40).size());
  return fmt::format("\"{}...{}\"", escaped(head), escaped(tail));
}

}  // namespace lagoon::checkpoint

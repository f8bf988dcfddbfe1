// Payload by way of io_uring and of threads, past the page cache and through it.
#include "checkpoint/weight_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <numeric>
#include <random>

#include "checkpoint/file.h"
#include "checkpoint/page_cache.h"
#include "checkpoint/read_queue.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/small_pieces.h"
#include "checkpoint/staging.h"
#include "checkpoint/test_support.h"

namespace {

// Of this program's own pread(): 0 as usual, else it says that it read at most so many bytes.
std::atomic<size_t> most_bytes = 0;
// It refuses direct reads, as some file systems do that allow to open a file for them; all but the
// first wait before they look at the file, as in a long queue.
std::atomic<bool> refuses_direct = false;
std::atomic<int> direct_reads = 0;

}  // namespace

// In place of the C library's.
extern "C" ssize_t pread(int descriptor, void* into, size_t bytes, off_t offset) {
  if (refuses_direct && direct_reads++ > 0) ::usleep(20'000);
  if (refuses_direct && (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0 &&
      ::fcntl(descriptor, F_GETFL) >= 0) {
    errno = EINVAL;
    return -1;
  }
  const ssize_t read = ::syscall(SYS_pread64, descriptor, into, bytes, offset);
  const size_t most = most_bytes;
  return most > 0 ? std::min(read, static_cast<ssize_t>(most)) : read;
}

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kStaging = 2 << 20;

// A file of small and large tensors, one of them larger than the staging memory.
class Weights {
 public:
  explicit Weights(const std::string& directory) {
    const std::vector<int64_t> sizes = {1,       4,         300'000, 5000,   3'000'001, 70'000,
                                        200'000, 65'536,    1,       9999,   1'048'576, 4096,
                                        65'537,  2'000'000, 17,      500'000};
    std::mt19937 random(1);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorToWrite> tensors;
    for (const int64_t size : sizes) {
      bytes.emplace_back(static_cast<size_t>(size));
      for (std::byte& byte : bytes.back()) byte = static_cast<std::byte>(random());
    }
    for (size_t i = 0; i < sizes.size(); ++i)
      tensors.push_back({fmt::format("t{}", i), numeric::DType::kU8, {sizes[i]}, bytes[i]});
    path_ = directory + "/model.safetensors";
    const Result<void> written = write_safetensors(path_, tensors);
    EXPECT_TRUE(written.ok()) << written.error().message;
    const int file = ::open(path_.c_str(), O_RDONLY);
    ::fsync(file);  // what is not on the disk yet cannot leave the cache
    ::close(file);
    Result<SafetensorsFile> opened = SafetensorsFile::open(path_);
    EXPECT_TRUE(opened.ok());
    file_.emplace(std::move(opened).value());
  }

  const std::string& path() const { return path_; }
  const SafetensorsFile& file() const { return *file_; }
  // Groups of one to three tensors, in an order that is not the file's.
  std::vector<Pieces> order() const {
    std::vector<Piece> pieces;
    for (const TensorInfo& tensor : file_->tensors())
      pieces.push_back({&*file_, tensor.offset, tensor.bytes});
    std::mt19937 random(2);
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::vector<Pieces> order;
    for (size_t i = 0; i < pieces.size();) {
      const size_t count = std::min(pieces.size() - i, size_t{1} + random() % 3);
      order.emplace_back(pieces.begin() + static_cast<std::ptrdiff_t>(i),
                         pieces.begin() + static_cast<std::ptrdiff_t>(i + count));
      i += count;
    }
    return order;
  }

  // The page cache of the file.
  std::vector<uint8_t> resident() const {
    return resident_pages(file_->mapping(), 0, file_->mapping().size());
  }
  void leave_cache() const {
    drop_pages(descriptor(), 0, std::vector<uint8_t>(resident().size(), 0));
  }
  void read_into_cache(uint64_t offset, uint64_t bytes) const {
    std::vector<char> into(bytes);
    (void)::posix_fadvise(descriptor(), 0, 0, POSIX_FADV_RANDOM);
    EXPECT_EQ(::pread(descriptor(), into.data(), bytes, static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes));
  }

 private:
  int descriptor() const {
    if (!input_) input_.emplace(InputFile::open(path_).value());
    return input_->descriptor();
  }

  std::string path_;
  std::optional<SafetensorsFile> file_;
  mutable std::optional<InputFile> input_;
};

// The error of reading everything; what is read is compared with the mapping where `compare` says.
std::string read_all(const Weights& weights, const ReadOptions& options, bool compare,
                     std::string* method = nullptr) {
  const std::vector<Pieces> order = weights.order();
  auto reader = WeightReader::start(order, options);
  if (!reader.ok()) return reader.error().message;
  for (const Pieces& pieces : order) {
    const auto spans = (*reader)->take(pieces);
    if (!spans.ok()) return spans.error().message;
    for (size_t i = 0; compare && i < pieces.size(); ++i) {
      const auto expected = weights.file().mapping().subspan(pieces[i].offset, pieces[i].bytes);
      EXPECT_TRUE(
          std::equal(expected.begin(), expected.end(), (*spans)[i].begin(), (*spans)[i].end()))
          << pieces[i].offset;
    }
  }
  if (method != nullptr) *method = (*reader)->method();
  return "";
}

const ReadOptions kWays[] = {
    {.staging_bytes = kStaging, .direct = true, .uring = true},
    {.staging_bytes = kStaging, .direct = true, .uring = false},
    {.staging_bytes = kStaging, .direct = false, .uring = true},
    {.staging_bytes = kStaging, .direct = false, .uring = false},
};

TEST(WeightReader, BytesAreThoseOfTheFile) {
  const TempDir dir;
  const Weights weights(dir.path());
  for (ReadOptions options : kWays) {
    for (const bool cached : {false, true}) {
      weights.leave_cache();
      if (cached) weights.read_into_cache(0, weights.file().mapping().size());
      LoadProgress progress;
      options.progress = &progress;
      EXPECT_EQ(read_all(weights, options, true), "");
      uint64_t total = 0;
      for (const TensorInfo& tensor : weights.file().tensors()) total += tensor.bytes;
      EXPECT_EQ(progress.state().bytes_done, total);
    }
  }
}

TEST(WeightReader, InMemoryFileSystems) {
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  const std::string directory = fmt::format("/dev/shm/lagoon-{}", ::getpid());
  fs::create_directory(directory);
  {
    const Weights weights(directory);
    for (const ReadOptions& options : kWays) EXPECT_EQ(read_all(weights, options, true), "");
  }
  fs::remove_all(directory);
}

TEST(WeightReader, DirectReadsMayBeRefusedWithOthersInFlight) {
  const TempDir dir;
  const Weights weights(dir.path());
  weights.leave_cache();
  const int direct = ::open(weights.path().c_str(), O_RDONLY | O_DIRECT);
  if (direct < 0) GTEST_SKIP() << "no direct I/O here";
  ::close(direct);
  direct_reads = 0;
  refuses_direct = true;
  std::string method;
  const std::string error = read_all(weights, kWays[1], true, &method);
  refuses_direct = false;
  EXPECT_EQ(error, "");
  EXPECT_EQ(method, "through the page cache, pread");
}

TEST(WeightReader, ReadsMayBeCutShort) {
  const TempDir dir;
  const Weights weights(dir.path());
  for (const size_t most : {1000, 4096, 5000}) {
    for (const ReadOptions& options : {kWays[1], kWays[3]}) {
      weights.leave_cache();
      most_bytes = most;
      const std::string error = read_all(weights, options, true);
      most_bytes = 0;
      EXPECT_EQ(error, "") << most << (options.direct ? " at most, direct" : " at most");
    }
  }
}

// Only where the file system can drop pages at all (tmpfs has nowhere else to keep them).
TEST(WeightReader, ThePageCacheStaysAsItWas) {
  const TempDir dir;
  const Weights weights(dir.path());
  weights.leave_cache();
  if (std::ranges::count(weights.resident(), 1) > 0) GTEST_SKIP() << "pages cannot be dropped";
  for (const ReadOptions& options : kWays) {
    weights.leave_cache();
    EXPECT_EQ(read_all(weights, options, false), "");
    EXPECT_THAT(weights.resident(), Each(0));
    EXPECT_TRUE(SafetensorsFile::open(weights.path()).ok());
    EXPECT_THAT(weights.resident(), Each(0)) << "the header";

    weights.read_into_cache(1 << 20, 3 << 20);
    const std::vector<uint8_t> before = weights.resident();
    EXPECT_EQ(std::ranges::count(before, 1), 768);
    EXPECT_EQ(read_all(weights, options, false), "");
    EXPECT_EQ(weights.resident(), before);
  }
}

TEST(WeightReader, SaysHowItReads) {
  const TempDir dir;
  const Weights weights(dir.path());
  weights.leave_cache();
  if (std::ranges::count(weights.resident(), 1) > 0) GTEST_SKIP() << "pages cannot be dropped";
  std::string method;
  EXPECT_EQ(read_all(weights, kWays[3], false, &method), "");
  EXPECT_EQ(method, "through the page cache, pread");
  EXPECT_EQ(read_all(weights, kWays[1], false, &method), "");
  EXPECT_THAT(method, ::testing::AnyOf("direct I/O, pread", "through the page cache, pread"));
  weights.read_into_cache(0, weights.file().mapping().size());
  EXPECT_EQ(read_all(weights, kWays[1], false, &method), "");
  EXPECT_EQ(method, "from the page cache, pread");
}

TEST(WeightReader, FilesThatChangeMeanwhile) {
  for (const ReadOptions& options : kWays) {
    const TempDir dir;
    const Weights weights(dir.path());
    const uint64_t size = weights.file().mapping().size();
    const std::vector<Pieces> order = weights.order();
    auto reader = WeightReader::start(order, options);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    fs::resize_file(weights.path(), 1 << 20);
    std::string error;
    for (size_t i = 0; i < order.size() && error.empty(); ++i) {
      const auto spans = (*reader)->take(order[i]);
      if (!spans.ok()) error = spans.error().message;
    }
    EXPECT_THAT(error, AllOf(HasSubstr(weights.path()), HasSubstr("became shorter")));
    EXPECT_THAT(read_all(weights, options, false), HasSubstr("was changed while it was"));
    fs::resize_file(weights.path(), size);
    fs::remove(weights.path());
    EXPECT_EQ(read_all(weights, options, false), weights.path() + " is missing");
  }
}

TEST(WeightReader, StagingIsBounded) {
  const TempDir dir;
  (void)dir.write("config.json", "{}");
  const Weights weights(dir.path());
  const auto model = ModelDir::open(dir.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const uint64_t bound = staging_bound(*model, {.staging_bytes = kStaging});
  EXPECT_GE(bound, kStaging + 3'000'001);
  EXPECT_LE(bound, kStaging + 3'000'001 + (400 << 10));
}

// A page and less is always small, 64 KiB only while there are few of them.
TEST(SmallPieces, TheLimitFollowsTheirNumber) {
  std::vector<Piece> pieces(1000, {nullptr, 0, 64 << 10});
  EXPECT_EQ(small_limit(pieces), 64u << 10);
  pieces.resize(2000, {nullptr, 0, 64 << 10});
  EXPECT_EQ(small_limit(pieces), 32u << 10);
  pieces.assign(100'000, {nullptr, 0, 4096});
  EXPECT_EQ(small_limit(pieces), 4096u);
}

TEST(SmallPieces, NeighboursAreOneStretch) {
  const std::vector<Piece> pieces = {{nullptr, 100'000, 4}, {nullptr, 8, 4},
                                     {nullptr, 9000, 4},    {nullptr, 4000, 200},
                                     {nullptr, 50'000, 0},  {nullptr, 200'000, 70'000}};
  EXPECT_EQ(small_stretches(pieces, 65536),
            (std::vector<Piece>{{nullptr, 0, 12288}, {nullptr, 98304, 4096}}));
}

TEST(Ring, SpansDoNotOverlap) {
  constexpr uint64_t kSize = 64 << 10;
  Ring ring(Pages::make(kSize).value());
  struct Span {
    std::byte* at;
    uint64_t bytes;
    std::byte mark;
  };
  std::deque<Span> taken;
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bytes = 1 + random() % (random() % 8 == 0 ? kSize : kSize / 8);
    std::byte* const at = ring.take(bytes);
    if (at == nullptr) {
      ++refused;
      ASSERT_FALSE(taken.empty()) << "an empty ring has room for " << bytes;
      const Span oldest = taken.front();
      taken.pop_front();
      ASSERT_TRUE(std::all_of(oldest.at, oldest.at + oldest.bytes,
                              [&](std::byte byte) { return byte == oldest.mark; }));
      ring.give_back(oldest.at, oldest.bytes);
      continue;
    }
    taken.push_back({at, bytes, static_cast<std::byte>(i)});
    std::fill_n(at, bytes, taken.back().mark);
  }
  EXPECT_GT(refused, 1000);
}

std::vector<std::unique_ptr<ReadQueue>> queues() {
  std::vector<std::unique_ptr<ReadQueue>> queues;
  queues.push_back(make_thread_queue(4));
  if (auto queue = make_uring_queue(4)) queues.push_back(std::move(queue));
  return queues;
}

// With O_NONBLOCK io_uring of Linux up to 5.11 gives EAGAIN for what is not in the page cache, for
// ever.
TEST(ReadQueue, FilesAreWaitedFor) {
  const TempDir dir;
  const auto file = InputFile::open(dir.write("text", "0123456789"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(::fcntl(file->descriptor(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(ReadQueue, ReadsAndErrors) {
  const TempDir dir;
  const std::string path = dir.write("text", "0123456789");
  const auto file = InputFile::open(path);
  ASSERT_TRUE(file.ok());
  for (const auto& queue : queues()) {
    SCOPED_TRACE(queue->name());
    std::array<std::array<std::byte, 8>, 3> into = {};
    queue->submit({file->descriptor(), 2, into[0].data(), 8, 5});
    queue->submit({file->descriptor(), 7, into[1].data(), 8, 6});  // three bytes are left
    queue->submit({-1, 0, into[2].data(), 8, 7});
    std::array<int64_t, 3> results = {};
    for (int i = 0; i < 3; ++i) {
      const ReadDone done = queue->wait();
      results[done.tag - 5] = done.result;
    }
    EXPECT_EQ(results, (std::array<int64_t, 3>{8, 3, -EBADF}));
    EXPECT_EQ(into[0][0], std::byte{'2'});
    EXPECT_EQ(into[1][2], std::byte{'9'});
  }
}

TEST(ReadQueue, EndsWithReadsInFlight) {
  const TempDir dir;
  const auto file = InputFile::open(dir.write("text", std::string(1 << 20, 'x')));
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> into(1 << 20);
  for (auto& queue : queues()) {
    for (uint64_t i = 0; i < 4; ++i)
      queue->submit({file->descriptor(), i << 18, into.data() + (i << 18), 1 << 18, i});
    queue.reset();
    EXPECT_EQ(into.back(), std::byte{'x'});
    into.back() = {};
  }
}

// In a process whose system calls are filtered, as containers do it.
TEST(ReadQueue, AFilteredIoUringIsNotUsed) {
  const TempDir dir;
  const Weights weights(dir.path());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::array<sock_filter, 4> filter = {{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      ::_exit(77);
    std::string method;
    const std::string error = read_all(weights, kWays[0], true, &method);
    const bool good = make_uring_queue(4) == nullptr && error.empty() &&
                      method.find("pread") != std::string::npos;
    ::_exit(good && !::testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filter can be installed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lagoon::checkpoint

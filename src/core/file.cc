#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace tessera {
namespace {

// A file descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

// `flags` as for open; O_NONBLOCK keeps the open of a pipe nobody writes from waiting.
int OpenForReading(const std::string& path, int flags, struct stat* status) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) Fail("{}: cannot open: {}", path, std::strerror(errno));
  if (fstat(fd, status) != 0 || S_ISDIR(status->st_mode)) {
    const bool is_directory = S_ISDIR(status->st_mode);
    close(fd);
    Fail("{}: {}", path, is_directory ? "is a directory, a file was expected" : "cannot stat");
  }
  return fd;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  struct stat status {};
  const Descriptor file(OpenForReading(path, O_NONBLOCK, &status));
  if (!S_ISREG(status.st_mode)) Fail("{}: not a regular file, it cannot be mapped", path);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) Fail("{}: cannot map {} bytes: {}", path, size_, std::strerror(errno));
  data_ = static_cast<const uint8_t*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string ReadFile(const std::string& path, size_t bytes_max) {
  struct stat status {};
  const Descriptor file(OpenForReading(path, 0, &status));
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(file.fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) Fail("{}: cannot read: {}", path, std::strerror(errno));
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
    if (content.size() > bytes_max) Fail("{}: larger than the {} bytes allowed here", path, bytes_max);
  }
}

void WriteFile(const std::string& path, std::string_view content) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) Fail("{}: cannot open for writing: {}", path, std::strerror(errno));
  while (!content.empty()) {
    const ssize_t count = write(fd, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(fd);
      Fail("{}: cannot write: {}", path, std::strerror(error));
    }
    content.remove_prefix(static_cast<size_t>(count));
  }
  if (close(fd) != 0) Fail("{}: cannot write: {}", path, std::strerror(errno));
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace tessera

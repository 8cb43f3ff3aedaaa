// Files as the engine meets them: mapped read-only (weights) or read whole with a bound (config, tokenizer, prompts).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera {

class MappedFile {
 public:
  MappedFile() = default;
  // Maps the whole file read-only. Throws Error naming the path.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as a string; throws Error naming the path when it cannot be read or holds more than `bytes_max`.
std::string ReadFile(const std::string& path, size_t bytes_max);
// Replaces the file's content; throws Error naming the path (also when the device is full, at close).
void WriteFile(const std::string& path, std::string_view content);
bool FileExists(const std::string& path);

}  // namespace tessera

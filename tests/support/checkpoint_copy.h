// A checkpoint copied into a directory of its own, for tests that break it. The copy edits files as text and bytes by its own few lines:
// the product's reader is among the things tested.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "core/json.h"
#include "support/temporary_folder.h"
#include "support/tensors.h"

namespace tessera::testing {

class CheckpointCopy {
 public:
  static constexpr const char* kFirstShard = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";
  static constexpr const char* kIndex = "model.safetensors.index.json";

  // Copies the files (not the folders) of a directory below the repository root.
  explicit CheckpointCopy(const std::string& relative) {
    for (const auto& entry : std::filesystem::directory_iterator(SourcePath(relative))) {
      if (entry.is_regular_file()) std::filesystem::copy_file(entry.path(), File(entry.path().filename().string()));
    }
  }

  const std::string& path() const { return folder_.path(); }
  std::string File(const std::string& name) const { return path() + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(File(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void Write(const std::string& name, const std::string& content) const { folder_.Write(name, content); }
  void Remove(const std::string& name) const { std::filesystem::remove(File(name)); }

  void EditJson(const std::string& name, const std::function<void(Json&)>& edit) const {
    Json json = Json::parse(Read(name));
    edit(json);
    Write(name, json.dump());
  }
  // Rewrites the header of a shard; its data stays as it is.
  void EditHeader(const std::string& shard, const std::function<void(Json&)>& edit) const {
    const std::string content = Read(shard);
    Json header = HeaderOf(content);
    edit(header);
    Write(shard, WithHeader(header.dump(), content.substr(DataStart(content))));
  }
  void SetByte(const std::string& shard, const std::string& tensor, size_t position, uint8_t value) const {
    std::string content = Read(shard);
    const size_t begin = HeaderOf(content).at(tensor).at("data_offsets")[0];
    content.at(DataStart(content) + begin + position) = static_cast<char>(value);
    Write(shard, content);
  }

  static std::string WithHeader(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string content(8, '\0');
    std::memcpy(content.data(), &length, 8);
    return content + header + data;
  }

 private:
  static size_t DataStart(const std::string& content) {
    uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    return 8 + length;
  }
  static Json HeaderOf(const std::string& content) { return Json::parse(content.substr(8, DataStart(content) - 8)); }

  TemporaryFolder folder_;
};

// The message of the E that `call` throws; empty when it throws none.
template <class E, class Call>
std::string MessageOf(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera::testing

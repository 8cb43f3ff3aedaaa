// Reads safetensors shards in place: header bounds, offsets and index coverage are checked before a byte of weight is touched.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace tessera {

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kBF16;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data section
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset
  uint64_t data_start = 0;           // bytes from the start of the file
};
// Parses and checks the header of a file whose whole content is `file` (only the header is read). Throws Error "<what>: ...": file shorter
// than its header says, header larger than 100 MB, unknown dtype, shape that does not match the offsets or overflows, overlapping or
// out-of-bounds ranges, duplicate names, gaps at the end.
SafetensorsHeader ParseSafetensorsHeader(std::span<const uint8_t> file, const std::string& what);

// A tensor of an opened checkpoint, with its bytes where they are mapped.
struct TensorData {
  Dtype dtype = Dtype::kBF16;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
  const std::string* file = nullptr;
};

class Checkpoint {
 public:
  // Opens model.safetensors.index.json and its shards, or a single model.safetensors (or any *.safetensors). Throws Error naming the
  // file: missing directory or shard, a tensor the index promises that its shard lacks, a tensor in two shards.
  static Checkpoint Open(const std::string& model_dir);

  const TensorData* Find(std::string_view name) const;  // null when absent
  const std::map<std::string, TensorData, std::less<>>& tensors() const { return tensors_; }
  const std::vector<MappedFile>& files() const { return files_; }
  // Hash of config.json, headers, sizes and modification times: names this checkpoint without reading its content.
  uint64_t checkpoint_id() const { return checkpoint_id_; }

 private:
  std::vector<MappedFile> files_;
  std::map<std::string, TensorData, std::less<>> tensors_;
  uint64_t checkpoint_id_ = 0;
};

// Writes tensors in the order given; used for dumps. Throws Error naming the path (also when the device is full).
struct TensorToWrite {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
};
void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace tessera

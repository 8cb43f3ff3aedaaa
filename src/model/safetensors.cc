#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "core/hash.h"
#include "core/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the bound of the format's own library
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr size_t kDimsMax = 8;
constexpr size_t kDepthMax = 64;

// Both headers and indexes are read as events, not as a tree: a tree would drop duplicate names silently, search them linearly, and
// cost many times the bytes of the text. `Handler` sees strings, keys and numbers with the depth they stand at; anything else ends the
// parse.
class EventReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Refuse("null is not expected"); }
  bool boolean(bool) override { return Refuse("a boolean is not expected"); }
  bool number_integer(number_integer_t value) override { return Refuse(fmt::format("{} is negative", value)); }
  bool number_unsigned(number_unsigned_t) override { return Refuse("a number is not expected"); }
  bool number_float(number_float_t, const string_t& text) override { return Refuse(fmt::format("{} is no integer", OneLine(text))); }
  bool string(string_t&) override { return Refuse("a string is not expected"); }
  bool binary(binary_t&) override { return Refuse("binary data is not expected"); }
  bool start_array(size_t) override { return Refuse("a list is not expected"); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return Refuse(fmt::format("not valid JSON at byte {}", position));
  }

  // Empty when the text was read to its end.
  const std::string& problem() const { return problem_; }

 protected:
  bool Refuse(std::string reason) {
    if (problem_.empty()) problem_ = std::move(reason);
    return false;
  }

 private:
  std::string problem_;
};

// {"name": {"dtype": D, "shape": [..], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "value", ..}}
class HeaderReader final : public EventReader {
 public:
  std::vector<TensorEntry> tensors;

  bool start_object(size_t) override {
    if (depth_ == 2 || list_ != nullptr) return Refuse(fmt::format("{}: an object is not expected", Where()));
    if (depth_ == 1 && !in_metadata_) {
      entry_ = {};
      entry_.name = name_;
      dtype_.reset();
      shape_.clear();
      offsets_.clear();
      seen_ = {};
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    if (in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    return FinishEntry();
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = text;
      in_metadata_ = text == "__metadata__";
      return true;
    }
    if (in_metadata_) return true;
    static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    field_ = static_cast<size_t>(std::find(kFields.begin(), kFields.end(), text) - kFields.begin());
    if (field_ == kFields.size()) return Refuse(fmt::format("{}: unknown field \"{}\"", Where(), OneLine(text)));
    if (seen_[field_]) return Refuse(fmt::format("{}: {} stands twice", Where(), text));
    return seen_[field_] = true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || list_ != nullptr || field_ != 0) return Refuse(fmt::format("{}: a string is not expected", Where()));
    dtype_ = ParseDtype(text);
    return dtype_ || Refuse(fmt::format("{}: unknown dtype \"{}\"", Where(), OneLine(text)));
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr || field_ == 0) return Refuse(fmt::format("{}: a list is not expected", Where()));
    list_ = field_ == 1 ? &shape_ : &offsets_;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return Refuse(fmt::format("{}: a number is not expected", Where()));
    if (list_->size() >= kDimsMax) return Refuse(fmt::format("{}: more than {} dimensions", Where(), kDimsMax));
    if (value > static_cast<uint64_t>(INT64_MAX)) return Refuse(fmt::format("{}: {} is too large", Where(), value));
    list_->push_back(value);
    return true;
  }

 private:
  std::string Where() const { return OneLine(name_); }

  bool FinishEntry() {
    if (!seen_[0] || !seen_[1] || !seen_[2] || offsets_.size() != 2 || !dtype_) {
      return Refuse(fmt::format("{}: needs dtype, shape and data_offsets [begin, end]", Where()));
    }
    uint64_t bytes = static_cast<uint64_t>(DtypeBytes(*dtype_));
    for (const uint64_t dim : shape_) {
      if (__builtin_mul_overflow(bytes, dim, &bytes)) return Refuse(fmt::format("{}: the product of its shape overflows", Where()));
      entry_.shape.push_back(static_cast<int64_t>(dim));
    }
    entry_.dtype = *dtype_;
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != bytes) {
      return Refuse(fmt::format("{}: offsets {} .. {} do not hold the {} bytes of {} [{}]", Where(), entry_.begin, entry_.end, bytes,
                                DtypeName(entry_.dtype), fmt::join(entry_.shape, ", ")));
    }
    tensors.push_back(std::move(entry_));
    return true;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;
  size_t field_ = 0;
  std::array<bool, 3> seen_ = {};
  std::optional<Dtype> dtype_;
  std::vector<uint64_t> shape_, offsets_;
  std::vector<uint64_t>* list_ = nullptr;  // where numbers go
  TensorEntry entry_;
};

// {"metadata": anything, "weight_map": {"name": "file", ..}}
class IndexReader final : public EventReader {
 public:
  std::map<std::string, std::string> file_of;

  bool null() override { return Skip("null"); }
  bool boolean(bool) override { return Skip("a boolean"); }
  bool number_integer(number_integer_t) override { return Skip("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Skip("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Skip("a number"); }
  bool string(string_t& text) override {
    if (!in_map_) return true;
    // A shard lies in the model's own directory; a path that leads elsewhere is an attack or a mistake.
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos || text.find('\0') != std::string::npos) {
      return Refuse(fmt::format("{}: \"{}\" is no file name", OneLine(name_), OneLine(text)));
    }
    if (!file_of.emplace(name_, std::move(text)).second) return Refuse(fmt::format("{}: stands twice in weight_map", OneLine(name_)));
    return true;
  }
  bool start_object(size_t) override {
    if (in_map_ && depth_ >= 2) return Refuse("an object inside weight_map");
    return Enter();
  }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Skip("a list") && Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& text) override {
    if (depth_ == 1) in_map_ = text == "weight_map";
    name_ = text;
    return true;
  }

 private:
  bool Skip(const char* what) { return !in_map_ || Refuse(fmt::format("{} in weight_map, names and files are expected", what)); }
  bool Enter() { return ++depth_ <= kDepthMax || Refuse(fmt::format("nested deeper than {} levels", kDepthMax)); }
  bool Leave() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  bool in_map_ = false;
  std::string name_;
};

// Runs `reader` over `text`; a complaint becomes the error of `what`.
void ReadEvents(std::string_view text, EventReader& reader, const std::string& what) {
  const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (!read || !reader.problem().empty()) Fail("{}: {}", what, reader.problem().empty() ? "not valid JSON" : reader.problem());
}

uint64_t LoadLittleEndian64(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

void CheckNamesAreUnique(const std::vector<TensorEntry>& tensors, const std::string& what) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) Fail("{}: {}: stands twice in the header", what, OneLine(*twice));
}

// Ranges must not overlap, and the last must end where the file ends: a shorter file was cut, a longer one is not what its header says.
void CheckRanges(const std::vector<TensorEntry>& tensors, uint64_t data_bytes, const std::string& what) {
  uint64_t end = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin < end)
      Fail("{}: {}: its data, from byte {}, overlaps the tensor before it, up to byte {}", what, OneLine(tensor.name), tensor.begin, end);
    end = tensor.end;
  }
  if (end > data_bytes) {
    const auto outside = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& tensor) { return tensor.end > data_bytes; });
    Fail("{}: {}: needs data up to byte {}, the file has {}: it was cut by {} bytes", what, OneLine(outside->name), end, data_bytes,
         end - data_bytes);
  }
  if (end < data_bytes) Fail("{}: {} bytes follow the data its header describes", what, data_bytes - end);
}

// Shards of a directory without an index: model.safetensors alone, or all *.safetensors in order of name.
std::vector<std::string> ListShards(const std::string& model_dir) {
  if (FileExists(model_dir + "/model.safetensors")) return {"model.safetensors"};
  std::vector<std::string> shards;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(model_dir, error)) {
    if (file.path().extension() == ".safetensors") shards.push_back(file.path().filename().string());
  }
  if (error) Fail("{}: cannot list: {}", model_dir, error.message());
  if (shards.empty()) Fail("{}: no model.safetensors.index.json and no *.safetensors", model_dir);
  std::sort(shards.begin(), shards.end());
  return shards;
}

void CheckShardsExist(const std::string& model_dir, const std::vector<std::string>& shards) {
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!FileExists(model_dir + "/" + shard)) missing.push_back(OneLine(shard));
  }
  if (missing.empty()) return;
  const size_t listed = std::min<size_t>(missing.size(), 8);
  Fail("{}: {} of {} shards of the index missing: {}{}", model_dir, missing.size(), shards.size(),
       fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(listed), ", "), listed < missing.size() ? ", ..." : "");
}

}  // namespace

SafetensorsHeader ParseSafetensorsHeader(std::span<const uint8_t> file, const std::string& what) {
  if (file.size() < 8) Fail("{}: {} bytes, too short for a safetensors file", what, file.size());
  const uint64_t header_bytes = LoadLittleEndian64(file.data());
  if (header_bytes > kHeaderBytesMax) Fail("{}: its header claims {} bytes, at most {} are allowed", what, header_bytes, kHeaderBytesMax);
  if (header_bytes > file.size() - 8) Fail("{}: its header claims {} bytes, the file has {}", what, header_bytes, file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') Fail("{}: its header does not start with an object", what);
  HeaderReader reader;
  ReadEvents(text, reader, what + ": header");
  SafetensorsHeader header;
  header.data_start = 8 + header_bytes;
  header.tensors = std::move(reader.tensors);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  CheckNamesAreUnique(header.tensors, what);
  CheckRanges(header.tensors, file.size() - header.data_start, what);
  return header;
}

Checkpoint Checkpoint::Open(const std::string& model_dir) {
  std::error_code error;
  if (!fs::is_directory(model_dir, error)) Fail("{}: no such directory", model_dir);
  const std::string index_path = model_dir + "/model.safetensors.index.json";
  IndexReader index;
  std::vector<std::string> shards;
  if (FileExists(index_path)) {
    ReadEvents(ReadFile(index_path, kIndexBytesMax), index, index_path);
    if (index.file_of.empty()) Fail("{}: no weight_map, or an empty one", index_path);
    for (const auto& [name, file] : index.file_of) shards.push_back(file);
    std::sort(shards.begin(), shards.end());
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    CheckShardsExist(model_dir, shards);
  } else {
    shards = ListShards(model_dir);
  }

  Checkpoint checkpoint;
  Hasher hasher;
  if (FileExists(model_dir + "/config.json")) hasher.Add(ReadFile(model_dir + "/config.json", size_t{64} << 20));
  checkpoint.files_.reserve(shards.size());  // tensors point at the names of their files
  for (const std::string& shard : shards) {
    const MappedFile& file = checkpoint.files_.emplace_back(model_dir + "/" + shard);
    const SafetensorsHeader header = ParseSafetensorsHeader(file.bytes(), file.path());
    for (const TensorEntry& entry : header.tensors) {
      TensorData data{entry.dtype, entry.shape, file.bytes().subspan(header.data_start + entry.begin, entry.end - entry.begin),
                      &file.path()};
      const auto [other, is_new] = checkpoint.tensors_.emplace(entry.name, std::move(data));
      if (!is_new) Fail("{}: {}: also in {}", file.path(), OneLine(entry.name), *other->second.file);
    }
    hasher.Add(shard);
    hasher.Add(file.bytes().first(header.data_start));
    hasher.Add(file.bytes().size());
    hasher.Add(static_cast<uint64_t>(fs::last_write_time(file.path(), error).time_since_epoch().count()));
  }
  for (const auto& [name, file] : index.file_of) {
    const TensorData* tensor = checkpoint.Find(name);
    if (tensor == nullptr || fs::path(*tensor->file).filename() != file)
      Fail("{}/{}: {}: the index promises it, the shard lacks it", model_dir, file, OneLine(name));
  }
  checkpoint.checkpoint_id_ = hasher.value();
  return checkpoint;
}

const TensorData* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    uint64_t bytes = static_cast<uint64_t>(DtypeBytes(tensor.dtype));
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    TSR_CHECK(bytes == tensor.bytes.size(), "{}: {} bytes for a shape of {}", tensor.name, tensor.bytes.size(), bytes);
    header[tensor.name] = {{"dtype", DtypeName(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts at a multiple of 8
  std::array<uint8_t, 8> length;
  for (int i = 0; i < 8; ++i) length[static_cast<size_t>(i)] = static_cast<uint8_t>(uint64_t{text.size()} >> (8 * i));

  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) Fail("{}: cannot open for writing: {}", path, std::strerror(errno));
  bool written = std::fwrite(length.data(), 1, 8, file) == 8 && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  for (const TensorToWrite& tensor : tensors) {
    written = written && std::fwrite(tensor.bytes.data(), 1, tensor.bytes.size(), file) == tensor.bytes.size();
  }
  written = std::fflush(file) == 0 && written;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) Fail("{}: cannot write: {}", path, std::strerror(written ? errno : error));
}

}  // namespace tessera

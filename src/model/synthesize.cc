#include "model/synthesize.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/check.h"
#include "core/file.h"
#include "core/threads.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartialSuffix = ".partial";
// A span of a file that one worker draws and writes: enough for a disk to stream, small beside the memory of any host.
constexpr int64_t kSpanBytes = int64_t{8} << 20;
// Direct writes want file offsets, lengths and memory at multiples of the block of any disk.
constexpr int64_t kBlockBytes = 4096;

struct PlannedTensor {
  TensorSpec spec;
  RandomTensors::Recipe recipe;
};

// Larger elements first, so that each is aligned in the file; otherwise in the order of the table, which keeps a layer together.
void LayOut(std::vector<PlannedTensor> tensors, SynthFile& file) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PlannedTensor& a, const PlannedTensor& b) { return DtypeBytes(a.recipe.dtype) > DtypeBytes(b.recipe.dtype); });
  // Json looks a key up before it adds one: a shard of many experts would take minutes.
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
  int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    json += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", tensor.spec.name,
                        DtypeName(tensor.recipe.dtype), fmt::join(tensor.spec.shape, ","), offset, offset + tensor.recipe.bytes);
    file.tensors.push_back({tensor.spec.name, tensor.recipe, offset});
    offset += tensor.recipe.bytes;
  }
  json += "}";
  json.resize((json.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data starts at a cache line
  file.header.resize(8);
  for (size_t i = 0; i < 8; ++i) file.header[i] = static_cast<char>(uint64_t{json.size()} >> (8 * i));
  file.header += json;
  for (SynthFile::Tensor& tensor : file.tensors) tensor.begin += static_cast<int64_t>(file.header.size());
  file.bytes = static_cast<int64_t>(file.header.size()) + offset;
}

std::string IndexJson(const SynthPlan& plan) {
  std::string map;
  for (const SynthFile& file : plan.files)
    for (const SynthFile::Tensor& tensor : file.tensors)
      map += fmt::format("{}\n    \"{}\": \"{}\"", map.empty() ? "" : ",", tensor.name, file.name);
  return fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n", plan.tensor_bytes, map);
}

std::string GenerationConfigJson(const ModelConfig& config) {
  const Json json = {{"bos_token_id", config.bos_token_id},
                     {"eos_token_id", config.eos_token_ids.front()},
                     {"do_sample", true},
                     {"temperature", 1.0},
                     {"top_p", 1.0}};
  return json.dump(2) + "\n";
}

std::string ErrorText(int error) { return std::strerror(error); }

// Draws and writes one file, span by span. Spans are taken in order, so that the disk sees one stream.
class FileWriter {
 public:
  FileWriter(const SynthFile& file, const RandomTensors& tensors, const std::string& path) : file_(file), tensors_(tensors), path_(path) {
    fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) Fail("{}: cannot open for writing: {}", path, ErrorText(errno));
    // Around the page cache where the file system can: it holds the data twice and writes it back late (measured: 0.2 to 0.5 GB/s
    // against 1.2 to 1.8 on the same disk). Where it cannot (files in memory), writes stay as they are.
    const int flags = fcntl(fd_, F_GETFL);
    if (flags >= 0) fcntl(fd_, F_SETFL, flags | O_DIRECT);
  }
  ~FileWriter() {
    if (fd_ >= 0) close(fd_);
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // On every worker. `buffer` holds kSpanBytes. Worker 0 is the calling thread and looks at `is_cancelled` between its spans.
  template <class Look>
  void WriteSpans(int worker_idx, uint8_t* buffer, Look&& is_cancelled) noexcept {
    while (error_.load(std::memory_order_relaxed) == 0 && !cancelled_.load(std::memory_order_relaxed)) {
      const int64_t begin = next_begin_.fetch_add(kSpanBytes);
      if (begin >= file_.bytes) return;
      const int64_t end = std::min(begin + kSpanBytes, file_.bytes);
      Draw(begin, end, buffer);
      WriteSpan(begin, end, buffer);
      bytes_done_.fetch_add(end - begin, std::memory_order_relaxed);
      if (worker_idx == 0 && is_cancelled(bytes_done_.load(std::memory_order_relaxed))) cancelled_ = true;
    }
  }

  // After all workers: false when cancelled. Throws Error when a write failed.
  bool Finish() {
    if (error_ != 0) Fail("{}: cannot write: {}", path_, ErrorText(error_));
    if (cancelled_) return false;
    if (ftruncate(fd_, file_.bytes) != 0 || fsync(fd_) != 0) Fail("{}: cannot write: {}", path_, ErrorText(errno));
    if (close(std::exchange(fd_, -1)) != 0) Fail("{}: cannot write: {}", path_, ErrorText(errno));
    return true;
  }

 private:
  void Draw(int64_t begin, int64_t end, uint8_t* out) const noexcept {
    const int64_t header_bytes = static_cast<int64_t>(file_.header.size());
    if (begin < header_bytes) std::memcpy(out, file_.header.data() + begin, static_cast<size_t>(std::min(end, header_bytes) - begin));
    auto tensor = std::partition_point(file_.tensors.begin(), file_.tensors.end(),
                                       [&](const SynthFile::Tensor& t) { return t.begin + t.recipe.bytes <= begin; });
    for (; tensor != file_.tensors.end() && tensor->begin < end; ++tensor) {
      const int64_t first = std::max(begin, tensor->begin);
      const int64_t last = std::min(end, tensor->begin + tensor->recipe.bytes);
      tensors_.Fill(tensor->recipe, first - tensor->begin, last - tensor->begin, out + (first - begin));
    }
  }

  // A last span is padded to whole blocks; Finish cuts the file to its size.
  void WriteSpan(int64_t begin, int64_t end, uint8_t* buffer) noexcept {
    int64_t length = (end - begin + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    std::memset(buffer + (end - begin), 0, static_cast<size_t>(length - (end - begin)));
    while (length > 0) {
      const ssize_t count = pwrite(fd_, buffer, static_cast<size_t>(length), begin);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        error_ = count == 0 ? ENOSPC : errno;
        return;
      }
      buffer += count;
      begin += count;
      length -= count;
    }
  }

  const SynthFile& file_;
  const RandomTensors& tensors_;
  const std::string path_;
  int fd_ = -1;
  std::atomic<int64_t> next_begin_{0};
  std::atomic<int64_t> bytes_done_{0};
  std::atomic<int> error_{0};
  std::atomic<bool> cancelled_{false};
};

// Files under temporary names, and their folder when it is new: removed unless they were published.
class PartialFiles {
 public:
  explicit PartialFiles(std::string directory) : directory_(std::move(directory)) {
    std::error_code error;
    is_new_ = fs::create_directories(directory_, error);
    if (error) Fail("{}: cannot make the directory: {}", directory_, error.message());
  }
  ~PartialFiles() {
    std::error_code ignored;
    for (const std::string& name : names_) {
      fs::remove(directory_ + "/" + name + kPartialSuffix, ignored);
      if (num_published_ > 0) fs::remove(directory_ + "/" + name, ignored);
    }
    if (is_new_ && !names_.empty()) fs::remove(directory_, ignored);
  }
  PartialFiles(const PartialFiles&) = delete;
  PartialFiles& operator=(const PartialFiles&) = delete;

  std::string Add(const std::string& name) {
    names_.push_back(name);
    return directory_ + "/" + name + kPartialSuffix;
  }
  // Gives all their names, in the order they were added.
  void Publish() {
    for (const std::string& name : names_) {
      std::error_code error;
      fs::rename(directory_ + "/" + name + kPartialSuffix, directory_ + "/" + name, error);
      if (error) Fail("{}/{}: cannot rename: {}", directory_, name, error.message());
      ++num_published_;
    }
    names_.clear();
  }

 private:
  std::string directory_;
  bool is_new_ = false;
  std::vector<std::string> names_;
  int num_published_ = 0;
};

struct FreeMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

// The closest folder above `path` that exists.
std::string ExistingParent(const std::string& path) {
  std::error_code error;
  fs::path parent = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(parent, error) && parent.has_relative_path()) parent = parent.parent_path();
  return parent.string();
}

}  // namespace

int64_t SynthPlan::file_bytes() const {
  int64_t bytes = 0;
  for (const SynthFile& file : files) bytes += file.bytes;
  for (const auto& [name, content] : texts) bytes += static_cast<int64_t>(content.size());
  return bytes;
}

SynthPlan PlanSynth(const Json& config_json, std::vector<std::pair<std::string, std::string>> tokenizer, int64_t shard_bytes) {
  const ModelConfig config = ParseModelConfig(config_json, "config.json");
  SynthPlan plan;
  std::vector<TensorSpec> table = TensorTable(config);
  plan.groups = TotalsByGroup(table);
  std::vector<std::vector<PlannedTensor>> shards;
  int64_t open_bytes = shard_bytes;
  for (size_t i = 0; i < table.size(); ++i) {
    const RandomTensors::Recipe recipe = RandomTensors::RecipeOf(config, table[i], i == 0 ? nullptr : &table[i - 1]);
    if (open_bytes + recipe.bytes > shard_bytes) {
      shards.emplace_back();
      open_bytes = 0;
    }
    open_bytes += recipe.bytes;
    plan.num_tensors += 1;
    plan.tensor_bytes += recipe.bytes;
    if (recipe.kind != RandomTensors::Recipe::Kind::kScale && recipe.kind != RandomTensors::Recipe::Kind::kExperts)
      plan.num_parameters += recipe.bytes / DtypeBytes(recipe.dtype) * (recipe.dtype == Dtype::kI8 ? 2 : 1);
    shards.back().push_back({table[i], recipe});
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    SynthFile& file = plan.files.emplace_back();
    file.name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    LayOut(std::move(shards[i]), file);
  }
  plan.texts = std::move(tokenizer);
  plan.texts.emplace_back("generation_config.json", GenerationConfigJson(config));
  plan.texts.emplace_back("model.safetensors.index.json", IndexJson(plan));
  plan.texts.emplace_back("config.json", config_json.dump(2) + "\n");
  return plan;
}

void CheckSynthTarget(const SynthPlan& plan, const std::string& out_dir) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(out_dir, error))) {
    if (!fs::is_directory(out_dir, error)) Fail("{}: is there and is no directory", out_dir);
    const bool is_empty = fs::is_empty(out_dir, error);
    if (error) Fail("{}: cannot list: {}", out_dir, error.message());
    if (!is_empty) Fail("{}: is not empty; a new or an empty directory is needed", out_dir);
  }
  struct statvfs status {};
  const std::string parent = ExistingParent(out_dir);
  if (statvfs(parent.c_str(), &status) != 0) Fail("{}: cannot see how much room there is: {}", parent, ErrorText(errno));
  const uint64_t available = uint64_t{status.f_bavail} * status.f_frsize;
  const int64_t needed = plan.file_bytes();
  if (static_cast<uint64_t>(needed) > available)
    Fail("{}: the checkpoint needs {} bytes, the file system has {} available", out_dir, needed, available);
}

bool WriteSynth(const SynthPlan& plan, const std::string& out_dir, const SynthWriting& writing) {
  CheckSynthTarget(plan, out_dir);
  const RandomTensors tensors(writing.seed);
  WorkerPool pool({writing.num_workers, true});
  const size_t buffer_bytes = static_cast<size_t>(kSpanBytes * pool.num_workers());
  const std::unique_ptr<uint8_t, FreeMemory> buffers(static_cast<uint8_t*>(std::aligned_alloc(kBlockBytes, buffer_bytes)));
  if (buffers == nullptr) Fail("no memory for buffers of {} bytes", buffer_bytes);

  PartialFiles partial(out_dir);
  int64_t bytes_before = 0;
  for (const SynthFile& file : plan.files) {
    FileWriter writer(file, tensors, partial.Add(file.name));
    pool.Run([&](int worker_idx) noexcept {
      writer.WriteSpans(worker_idx, buffers.get() + kSpanBytes * worker_idx, [&](int64_t bytes_done) {
        if (writing.on_progress) writing.on_progress(bytes_before + bytes_done);
        return writing.is_cancelled && writing.is_cancelled();
      });
    });
    if (!writer.Finish()) return false;
    bytes_before += file.bytes;
  }
  for (const auto& [name, content] : plan.texts) WriteFile(partial.Add(name), content);
  partial.Publish();
  return true;
}

}  // namespace tessera

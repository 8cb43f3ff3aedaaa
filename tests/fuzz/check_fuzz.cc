// End to end: the input edits a sound miniature checkpoint on disk, then the files go through what `tessera check` and the start of an
// engine do with them. No edit may end in anything but a list of problems, an Error or a sound model.
//
// Input: one byte chooses the miniature; then edits of [file, operation, position u16, length, bytes...], the position modulo the file's
// size.
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/json.h"
#include "model/weights.h"

namespace tessera {
namespace {

constexpr const char* kV41Config = R"({"model_type":"deepseek_v41","text_config":{
"vocab_size":64,"hidden_size":32,"num_hidden_layers":3,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"qk_rope_head_dim":16,
"q_lora_rank":16,"o_lora_rank":8,"o_groups":2,"sliding_window":8,"compress_ratios":[0,2,1],"kv_source_layer_ids":[1,2],
"index_source_layer_ids":[1,2],"candidate_source_layer_id":2,"candidate_topk_blocks":2,"candidate_block_size":8,"index_n_heads":2,
"index_head_dim":32,"index_topk":4,"hc_mult":4,"hc_sinkhorn_iters":20,"hc_eps":1e-6,"n_routed_experts":2,"num_experts_per_tok":1,
"n_shared_experts":1,"moe_intermediate_size":32,"routed_scaling_factor":1.5,"swiglu_limit":10.0,"rms_norm_eps":1e-20,"rope_theta":10000,
"compress_rope_theta":160000,"rope_scaling":{"rope_type":"yarn","factor":16,"beta_fast":32,"beta_slow":1,
"original_max_position_embeddings":64},"max_position_embeddings":1024,"engram_layer_ids":[1],"engram_num_embeddings":[11],
"engram_max_ngram_size":2,"engram_vocab_size":10,"engram_n_heads":1,"engram_head_dim":32,"engram_pad_token_id":2,
"engram_compressed_vocab_size":60,"bos_token_id":0,"eos_token_id":1},"quantization_config":{"weight_block_size":[32,32]}})";

constexpr const char* kV4Config = R"({"model_type":"deepseek_v4",
"vocab_size":64,"hidden_size":32,"num_hidden_layers":3,"num_attention_heads":2,"head_dim":32,"qk_rope_head_dim":16,"q_lora_rank":16,
"o_lora_rank":8,"o_groups":2,"sliding_window":8,"compress_ratios":[0,4,8],"index_n_heads":2,"index_head_dim":32,"index_topk":4,"hc_mult":4,
"hc_sinkhorn_iters":20,"hc_eps":1e-6,"num_hash_layers":1,"n_routed_experts":2,"num_experts_per_tok":1,"n_shared_experts":1,
"moe_intermediate_size":32,"swiglu_limit":10.0,"rms_norm_eps":1e-6,"rope_theta":10000,"compress_rope_theta":160000,
"max_position_embeddings":1024,"bos_token_id":0,"eos_token_id":[1],"quantization_config":{"weight_block_size":[128,128]}})";

constexpr std::array<const char*, 4> kFileNames = {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                                                   "model-00002-of-00002.safetensors"};

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A sound checkpoint of the config, all codes zero, every other tensor in the second shard.
class Miniature {
 public:
  explicit Miniature(const char* config_text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-fuzz-XXXXXX").string();
    TSR_CHECK(mkdtemp(pattern.data()) != nullptr, "{}", pattern);
    path_ = pattern;
    contents_[0] = config_text;
    std::array<std::vector<TensorToWrite>, 2> shards;
    const std::vector<uint8_t> zeros(1 << 16);
    nlohmann::json index;
    size_t position = 0;
    for (const TensorSpec& spec : TensorTable(ParseModelConfig(ParseJson(config_text, "config"), "config"))) {
      const size_t shard = position++ % 2;
      const size_t bytes = static_cast<size_t>(TensorBytes(spec));
      TSR_CHECK(bytes <= zeros.size(), "{} has {} bytes", spec.name, bytes);
      shards[shard].push_back({spec.name, spec.dtypes.front(), spec.shape, std::span(zeros).first(bytes)});
      index["weight_map"][spec.name] = kFileNames[2 + shard];
    }
    contents_[1] = index.dump();
    for (size_t shard = 0; shard < 2; ++shard) {
      WriteSafetensors(PathOf(2 + shard), shards[shard]);
      contents_[2 + shard] = ReadWhole(PathOf(2 + shard));
    }
    for (size_t i = 0; i < 2; ++i) Put(i, contents_[i]);
  }
  ~Miniature() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  const std::array<std::string, 4>& contents() const { return contents_; }
  void Put(size_t file_idx, const std::string& content) const {
    std::ofstream(PathOf(file_idx), std::ios::binary | std::ios::trunc) << content;
  }

 private:
  std::string PathOf(size_t file_idx) const { return path_ + "/" + kFileNames[file_idx]; }

  std::string path_;
  std::array<std::string, 4> contents_;
};

// Applies the edits of the input; returns which files they touched.
std::array<bool, 4> Edit(const uint8_t* data, size_t size, std::array<std::string, 4>& contents) {
  std::array<bool, 4> touched = {};
  while (size >= 5) {
    const size_t file_idx = data[0] % 4, operation = data[1] % 4, wanted = data[4];
    std::string& content = contents[file_idx];
    const size_t position = (data[2] | size_t{data[3]} << 8) % (content.size() + 1);
    data += 5;
    size -= 5;
    const size_t length = std::min(wanted, size);
    const std::string bytes(reinterpret_cast<const char*>(data), length);
    touched[file_idx] = true;
    switch (operation) {
      case 0:
        content.replace(position, std::min(length, content.size() - position), bytes);
        break;  // overwrite, at the end append
      case 1:
        content.resize(position);
        continue;  // cut
      case 2:
        content.insert(position, bytes);
        break;
      default:
        content.erase(position, wanted);
        continue;
    }
    data += length;
    size -= length;
  }
  return touched;
}

// Returns whether the model is sound.
bool CheckAsTheCommandDoes(const std::string& model_dir, bool deep) {
  try {
    const ModelConfig config = ReadModelConfig(model_dir);
    if (!VerifyFiles(model_dir).empty()) return false;
    const Checkpoint checkpoint = Checkpoint::Open(model_dir);
    const std::vector<CheckpointProblem> problems = VerifyCheckpoint(config, checkpoint, deep);
    if (problems.size() > kProblemsMax + 1) abort();
    for (int rank = 0; rank < 2; ++rank) {
      const ModelWeights weights = ClaimWeights(config, checkpoint, {rank, 2});
      if (weights.layers.size() != static_cast<size_t>(config.num_hidden_layers)) abort();
    }
    RefuseNanScales(checkpoint);
    return problems.empty();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) abort();  // errors are one line
    return false;
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const std::array<Miniature, 2> miniatures = {Miniature(kV41Config), Miniature(kV4Config)};
  if (size == 0) return 0;
  const Miniature& miniature = miniatures[data[0] % 2];
  std::array<std::string, 4> contents = miniature.contents();
  const std::array<bool, 4> touched = Edit(data + 1, size - 1, contents);
  for (size_t i = 0; i < 4; ++i)
    if (touched[i]) miniature.Put(i, contents[i]);
  const bool sound = CheckAsTheCommandDoes(miniature.path(), (data[0] & 2) != 0);
  if (!sound && touched == std::array<bool, 4>{}) abort();  // or nothing behind the first refusal would be tested
  for (size_t i = 0; i < 4; ++i)
    if (touched[i]) miniature.Put(i, miniature.contents()[i]);
  return 0;
}

#include "model/activations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/forward.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::SourcePath;

struct Buffer {
  const char* name;
  const uint8_t* begin;
  int64_t bytes;
};

// Every buffer of a pass with the size its comment promises.
class BufferList {
 public:
  template <class U>
  void Add(const char* name, const U* data, int64_t count) {
    buffers_.push_back({name, reinterpret_cast<const uint8_t*>(data), count * static_cast<int64_t>(sizeof(U))});
  }
  template <class U>
  void AddView(const char* name, const View<U>& view, int64_t rows, int64_t cols) {
    EXPECT_EQ(view.rows, rows) << name;
    EXPECT_EQ(view.cols, cols) << name;
    EXPECT_EQ(view.stride, cols) << name;
    Add(name, view.data, rows * cols);
  }
  std::vector<Buffer> InOrder() {
    std::sort(buffers_.begin(), buffers_.end(), [](const Buffer& x, const Buffer& y) { return x.begin < y.begin; });
    return buffers_;
  }

 private:
  std::vector<Buffer> buffers_;
};

template <class T>
void AddAttention(const Activations<T>& a, const ModelConfig& config, int64_t rows, int num_workers, BufferList& list) {
  const int64_t heads = config.num_attention_heads;
  const int64_t index_width = config.index_n_heads * config.index_head_dim, lists = PartialListsMax(rows, num_workers);
  for (int i = 0; i < 2; ++i) {
    list.AddView("cos", a.cos[i], rows, config.qk_rope_head_dim / 2);
    list.AddView("sin", a.sin[i], rows, config.qk_rope_head_dim / 2);
  }
  list.AddView("q_lora", a.q_lora, rows, config.q_lora_rank);
  list.AddView("kv", a.kv, rows, config.head_dim);
  list.AddView("q", a.q, rows, heads * config.head_dim);
  list.AddView("attended", a.attended, rows, heads * config.head_dim);
  list.AddView("o_lora", a.o_lora, rows, config.o_groups * config.o_lora_rank);
  list.AddView("pool_values", a.pool_values, rows, 2 * config.head_dim);
  list.AddView("pool_logits", a.pool_logits, rows, 2 * config.head_dim);
  list.AddView("index_pool_values", a.index_pool_values, rows, 2 * config.index_head_dim);
  list.AddView("index_pool_logits", a.index_pool_logits, rows, 2 * config.index_head_dim);
  list.AddView("latent", a.latent, rows, config.head_dim);
  list.AddView("index_q", a.index_q, rows, index_width);
  list.AddView("index_q4", a.index_q4, rows, index_width);
  list.AddView("index_weights_raw", a.index_weights_raw, rows, config.index_n_heads);
  list.AddView("index_weights", a.index_weights, rows, config.index_n_heads);
  list.Add("selection entries", a.selection.entries, rows * config.index_topk);
  list.Add("selection counts", a.selection.counts, rows);
  list.Add("candidate blocks", a.candidates.blocks, rows * config.candidate_topk_blocks);
  list.Add("candidate counts", a.candidates.counts, rows);
  list.Add("list entries", a.lists.entries, lists * config.index_topk);
  list.Add("list entry counts", a.lists.entry_counts, lists);
  list.Add("list blocks", a.lists.blocks, lists * config.candidate_topk_blocks);
  list.Add("list block counts", a.lists.block_counts, lists);
}

template <class T>
std::vector<Buffer> Buffers(const Activations<T>& a, const ModelConfig& config, int64_t rows, int num_workers) {
  BufferList list;
  AddAttention(a, config, rows, num_workers, list);
  const int64_t hidden = config.hidden_size, streams = config.hc_mult;
  const int64_t k = config.num_experts_per_tok, intermediate = config.moe_intermediate_size;
  list.AddView("streams", a.streams, rows, streams * hidden);
  list.AddView("mixes", a.mixes, rows, 2 * streams + streams * streams);
  list.Add("hc_attn", a.hc_attn, rows);
  list.Add("hc_ffn", a.hc_ffn, rows);
  list.AddView("x", a.x, rows, hidden);
  list.AddView("y", a.y, rows, hidden);
  EXPECT_GE(a.quantized.cols, std::max({hidden, config.q_lora_rank, config.o_groups * config.o_lora_rank}));
  list.AddView("quantized", a.quantized, rows, a.quantized.cols);
  list.AddView("router_scores", a.router_scores, rows, config.n_routed_experts);
  list.Add("expert_ids", a.expert_ids, rows * k);
  list.Add("expert_weights", a.expert_weights, rows * k);
  list.Add("active experts", a.assignment->active_experts, config.n_routed_experts);
  list.Add("num_active", a.assignment->num_active, 1);
  list.Add("assignment first", a.assignment->first, config.n_routed_experts + 1);
  list.Add("assignment row", a.assignment->row, rows * k);
  list.Add("assignment weight", a.assignment->weight, rows * k);
  list.Add("assignment position", a.assignment->position, rows * k);
  list.AddView("hidden", a.hidden, rows * k, intermediate);
  list.AddView("shared_hidden", a.shared_hidden, rows, intermediate * config.n_shared_experts);
  list.AddView("expert_out", a.expert_out, rows * k, hidden);
  list.AddView("shared_out", a.shared_out, rows, hidden);
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) list.AddView("engram_rows", a.engram_rows[i], rows, config.engram_columns());
  if (!config.engram_layer_ids.empty()) {
    EXPECT_GE(a.quantized.cols, a.engram_input.cols);
    list.AddView("engram_input", a.engram_input, rows, config.engram_columns() * config.engram_head_dim);
    list.AddView("engram_kv", a.engram_kv, rows, (streams + 1) * hidden);
    list.AddView("engram_gates", a.engram_gates, rows, streams);
  }
  list.AddView("head_x", a.head_x, rows, hidden);
  list.AddView("logits", a.logits, rows, config.vocab_size);
  return list.InOrder();
}

template <class T>
void CheckBuffers(const std::string& model) {
  SCOPED_TRACE(model);
  const ModelConfig config = ReadModelConfig(SourcePath("tests/golden/" + model));
  const Numerics numerics = sizeof(T) == sizeof(float) ? Numerics::kFp32 : Numerics::kBf16;
  constexpr int kWorkers = 3;
  constexpr int32_t kRowsMax = 64;
  Arena arena("activations", ActivationBytesMax(config, numerics, kRowsMax, kWorkers)), arguments("arguments", 1 << 20);
  size_t larger = arena.capacity_bytes();
  for (const int32_t rows : {kRowsMax, 33, 32, 8, 4, 2, 1}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows");
    arena.Rewind(0);
    const Activations<T> a = Activations<T>::Allocate(arena, arguments, config, rows, kWorkers);
    // What a bucket takes is less than what the next larger one took, which is how the largest sizes the arena.
    EXPECT_LE(arena.used_bytes(), larger);
    larger = arena.used_bytes();
    const uint8_t* end = arena.base();
    for (const Buffer& buffer : Buffers(a, config, rows, kWorkers)) {
      if (buffer.bytes == 0) continue;
      ASSERT_GE(buffer.begin, end) << buffer.name << " begins inside the buffer before it";
      ASSERT_EQ((buffer.begin - arena.base()) % static_cast<int64_t>(Arena::kAlignment), 0) << buffer.name;
      end = buffer.begin + buffer.bytes;
    }
    EXPECT_LE(end, arena.base() + arena.used_bytes());
  }
}

TEST(ActivationsTest, BuffersAreDisjointAlignedAndFitTheLargestBucket) {
  for (const char* model : {"v4_tiny", "v41_tiny"}) {
    CheckBuffers<bf16>(model);
    CheckBuffers<float>(model);
  }
}

TEST(ActivationsTest, ReleasedModelsNeedWhatIsReserved) {
  for (const char* name : {"v41_flash", "v4_flash", "v4_pro"}) {
    const ModelConfig config = ReadModelConfig(SourcePath(std::string("tests/golden/configs/") + name));
    const size_t bf16_bytes = ActivationBytesMax(config, Numerics::kBf16, 512, 16),
                 fp32_bytes = ActivationBytesMax(config, Numerics::kFp32, 512, 16);
    // At least the streams, the expert results and the logits; twice that and more in fp32, apart from what is fp32 anyway.
    const size_t rows = 512, logits = rows * static_cast<size_t>(config.vocab_size) * 4;
    const size_t wide = rows * static_cast<size_t>((config.hc_mult + config.num_experts_per_tok) * config.hidden_size) * 2;
    EXPECT_GE(bf16_bytes, logits + wide) << name;
    EXPECT_GE(fp32_bytes, bf16_bytes + wide) << name;
    EXPECT_EQ(ActivationBytesMax(config, Numerics::kReference, 512, 16), bf16_bytes) << name;
  }
}

}  // namespace
}  // namespace tessera

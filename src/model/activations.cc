#include "model/activations.h"

#include <algorithm>
#include <new>

namespace tessera {

template <class T>
Activations<T> Activations<T>::Allocate(Arena& arena, Arena& arguments, const ModelConfig& config, int32_t rows, int num_workers) {
  Activations a{};
  const int64_t hidden = config.hidden_size, streams = config.hc_mult, heads = config.num_attention_heads;
  const int64_t k = config.num_experts_per_tok, intermediate = config.moe_intermediate_size;
  a.streams = arena.AllocateView<T>(rows, streams * hidden);
  a.mixes = arena.AllocateView<float>(rows, 2 * streams + streams * streams);
  a.hc_attn = arena.Allocate<HcCoefficients>(rows);
  a.hc_ffn = arena.Allocate<HcCoefficients>(rows);
  a.layer_rows = LayerRows::Allocate(arena, config, rows);
  a.x = arena.AllocateView<T>(rows, hidden);
  a.y = arena.AllocateView<T>(rows, hidden);
  for (int i = 0; i < 2; ++i) {
    a.cos[i] = arena.AllocateView<float>(rows, config.qk_rope_head_dim / 2);
    a.sin[i] = arena.AllocateView<float>(rows, config.qk_rope_head_dim / 2);
  }

  a.q_lora = arena.AllocateView<T>(rows, config.q_lora_rank);
  a.kv = arena.AllocateView<T>(rows, config.head_dim);
  a.q = arena.AllocateView<T>(rows, heads * config.head_dim);
  a.attended = arena.AllocateView<T>(rows, heads * config.head_dim);
  a.o_lora = arena.AllocateView<T>(rows, config.o_groups * config.o_lora_rank);

  a.pool_values = arena.AllocateView<float>(rows, 2 * config.head_dim);
  a.pool_logits = arena.AllocateView<float>(rows, 2 * config.head_dim);
  a.index_pool_values = arena.AllocateView<float>(rows, 2 * config.index_head_dim);
  a.index_pool_logits = arena.AllocateView<float>(rows, 2 * config.index_head_dim);
  a.latent = arena.AllocateView<T>(rows, config.head_dim);
  a.index_q = arena.AllocateView<T>(rows, config.index_n_heads * config.index_head_dim);
  a.index_q4 = arena.AllocateView<bf16>(rows, config.index_n_heads * config.index_head_dim);
  a.index_weights_raw = arena.AllocateView<T>(rows, config.index_n_heads);
  a.index_weights = arena.AllocateView<float>(rows, config.index_n_heads);
  a.selection = {arena.Allocate<int32_t>(rows * config.index_topk), arena.Allocate<int32_t>(rows), config.index_topk};
  a.candidates = {arena.Allocate<int32_t>(rows * config.candidate_topk_blocks), arena.Allocate<int32_t>(rows),
                  config.candidate_topk_blocks};
  const int64_t lists = PartialListsMax(rows, num_workers);
  a.lists = {arena.Allocate<ScoredIndex>(lists * config.index_topk), arena.Allocate<int32_t>(lists),
             arena.Allocate<ScoredIndex>(lists * config.candidate_topk_blocks), arena.Allocate<int32_t>(lists)};

  a.router_scores = arena.AllocateView<float>(rows, config.n_routed_experts);
  a.expert_ids = arena.Allocate<int32_t>(rows * k);
  a.expert_weights = arena.Allocate<float>(rows * k);
  a.assignment = new (arguments.Allocate<Assignment>(1))
      Assignment(Assignment::Allocate(arena, rows, config.n_routed_experts, config.num_experts_per_tok));
  a.hidden = arena.AllocateView<T>(rows * k, intermediate);
  a.shared_hidden = arena.AllocateView<T>(rows, intermediate * config.n_shared_experts);
  a.expert_out = arena.AllocateView<T>(rows * k, hidden);
  a.shared_out = arena.AllocateView<T>(rows, hidden);

  const int64_t engram_layers = static_cast<int64_t>(config.engram_layer_ids.size());
  const int64_t engram_cols = config.engram_columns() * config.engram_head_dim;
  if (engram_layers > 0) {
    a.engram_rows = arguments.Allocate<View<int64_t>>(engram_layers);
    for (int64_t i = 0; i < engram_layers; ++i)
      new (a.engram_rows + i) View<int64_t>(arena.AllocateView<int64_t>(rows, config.engram_columns()));
    a.engram_input = arena.AllocateView<T>(rows, engram_cols);
    a.engram_kv = arena.AllocateView<T>(rows, (streams + 1) * hidden);
    a.engram_gates = arena.AllocateView<float>(rows, streams);
  }
  a.quantized = arena.AllocateView<T>(rows, std::max({hidden, config.q_lora_rank, config.o_groups * config.o_lora_rank, engram_cols}));

  a.head_x = arena.AllocateView<T>(rows, hidden);
  a.logits = arena.AllocateView<float>(rows, config.vocab_size);
  return a;
}

template struct Activations<float>;
template struct Activations<bf16>;

}  // namespace tessera

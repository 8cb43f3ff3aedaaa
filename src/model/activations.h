// What a step computes on the way: one buffer each, reused layer after layer, sized by the bucket.
#pragma once

#include <cstdint>

#include "attention/indexer.h"
#include "core/arena.h"
#include "core/view.h"
#include "kernels/hyper_connection.h"
#include "model/config.h"
#include "model/encoder_shortcut.h"
#include "moe/assignment.h"

namespace tessera {

template <class T>
struct Activations {
  View<T> streams;          // [rows, hc_mult * hidden] residual streams
  View<float> mixes;        // [rows, 2 hc_mult + hc_mult^2] products of a mix before its nonlinearities
  HcCoefficients* hc_attn;  // [rows] coefficients of the latest attention and FFN sites
  HcCoefficients* hc_ffn;
  LayerRows layer_rows;
  View<T> x;                   // [rows, hidden] a sub-layer's normed input
  View<T> y;                   // [rows, hidden] its output
  View<T> quantized;           // [rows, widest quantised input] inputs under --numerics reference
  View<float> cos[2], sin[2];  // [rows, rope_dims / 2] plain, compressed

  View<T> q_lora;    // [rows, q_lora_rank]
  View<T> kv;        // [rows, head_dim]
  View<T> q;         // [rows, heads * head_dim]
  View<T> attended;  // [rows, heads * head_dim]
  View<T> o_lora;    // [rows, o_groups * o_lora_rank]

  View<float> pool_values, pool_logits;              // [rows, 2 * head_dim] compressor inputs
  View<float> index_pool_values, index_pool_logits;  // [rows, 2 * index_head_dim]
  View<T> latent;                                    // [rows, head_dim] V4.1 ratio 1
  View<T> index_q;                                   // [rows, index_n_heads * index_head_dim]
  View<bf16> index_q4;                               // the same on the Q4 grid
  View<T> index_weights_raw;                         // [rows, index_n_heads]
  View<float> index_weights;
  Selection selection;
  Candidates candidates;
  PartialLists lists;

  View<float> router_scores;  // [rows, n_routed_experts]
  int32_t* expert_ids;        // [rows, num_experts_per_tok]
  float* expert_weights;
  Assignment* assignment;
  View<T> hidden, shared_hidden;   // [rows * k, moe_intermediate_size], [rows, moe_intermediate_size]
  View<T> expert_out, shared_out;  // [rows * k, hidden], [rows, hidden]

  View<int64_t>* engram_rows;  // [engram layers] of [rows, columns]
  View<T> engram_input;        // [rows, columns * engram_head_dim]
  View<T> engram_kv;           // [rows, (hc_mult + 1) * hidden]
  View<float> engram_gates;    // [rows, hc_mult]

  View<T> head_x;      // [rows, hidden], logit rows only
  View<float> logits;  // [rows, vocab_size], logit rows only

  // Buffers come from `arena`, which other buckets alias; descriptions of buffers that ops point to come from `arguments`.
  static Activations Allocate(Arena& arena, Arena& arguments, const ModelConfig& config, int32_t rows, int num_workers);
};

}  // namespace tessera

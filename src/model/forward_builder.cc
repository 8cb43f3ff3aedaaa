#include "model/forward_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/convert.h"
#include "kernels/gather_rows.h"
#include "kernels/hyper_connection.h"
#include "kernels/ngram_hash.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/stream_gate.h"

namespace tessera {
namespace {

constexpr int64_t kColumnGrain = 64;  // columns of a stream update a work item is cut at

// Items when rows are divided over the workers, with rows cut into column ranges where there are fewer rows than workers.
struct RowColumns {
  int64_t row = 0;
  Range columns;
};
template <class F>
void ForRowColumns(const WorkerContext& worker, RowList rows, int64_t cols, F&& body) noexcept {
  const int64_t parts = PartsPerRow(rows.size(), worker.num_workers);
  const Range items = worker.PartOf(rows.size() * parts);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Range columns = PartOf(cols, static_cast<int>(item % parts), static_cast<int>(parts), kColumnGrain);
    if (columns.begin < columns.end) body(RowColumns{rows[item / parts], columns});
  }
}

}  // namespace

template <class T>
ForwardBuilder<T>::ForwardBuilder(PlanBuilder& builder, const ForwardContext& context)
    : builder_(builder),
      context_(context),
      config_(context.model->config()),
      weights_(context.model->weights()),
      step_(context.step),
      v41_(config_.v41()),
      reference_(context.numerics == Numerics::kReference),
      rows_(builder.bucket_rows()),
      a_(Activations<T>::Allocate(builder.activations(), builder.arguments(), config_, rows_, builder.num_workers())) {
  TSR_CHECK((context.numerics == Numerics::kFp32) == (sizeof(T) == sizeof(float)), "activation type and numerics disagree");
  if (context.comm->size() != 1) Fail("{} ranks: this build runs on one rank", context.comm->size());
}

template <class T>
View<const T> ForwardBuilder<T>::QuantizedInput(Region region, RowList list, View<const T> x) {
  if (!reference_) return x;
  const View<T> quantized{a_.quantized.data, a_.quantized.rows, x.cols, x.cols};
  const int64_t block = config_.activation_block();
  builder_.Add(region, [=](const WorkerContext& worker) noexcept {
    const Range mine = worker.PartOf(list.size());
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const int64_t row = list[i];
      std::copy_n(x.Row(row), x.cols, quantized.Row(row));
      FakeQuantizeQ8(quantized.Row(row), x.cols, block);
    }
  });
  return quantized;
}

template <class T>
void ForwardBuilder<T>::Inputs() {
  struct Arguments {
    const Step* step;
    const float* frequencies[2];
    int64_t rope_dims;
    View<float> cos[2], sin[2];
    QuantView embed;
    View<T> streams;
    int hc_mult;
    int64_t hidden;
    HcCoefficients* first_coefficients;
    LayerRows layer_rows;
  };
  Arguments arguments{};
  arguments.step = step_;
  arguments.rope_dims = config_.qk_rope_head_dim;
  for (int i = 0; i < 2; ++i) {
    arguments.frequencies[i] = context_.model->rope_frequencies(i == 1).data();
    arguments.cos[i] = a_.cos[i];
    arguments.sin[i] = a_.sin[i];
  }
  arguments.embed = weights_.embed;
  arguments.streams = a_.streams;
  arguments.hc_mult = config_.hc_mult;
  arguments.hidden = config_.hidden_size;
  arguments.first_coefficients = a_.hc_ffn;
  arguments.layer_rows = a_.layer_rows;
  const auto cost = [step = step_, row_bytes = weights_.embed.row_bytes]() noexcept { return OpCost{step->num_rows * row_bytes, 0}; };
  const auto body = [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    if (worker.worker_idx == worker.num_workers - 1) in.layer_rows.Compact(*in.step);
    const Range rows = worker.PartOf(in.step->num_rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int i = 0; i < 2; ++i)
        RopeCosSin(in.step->position[row], in.frequencies[i], in.rope_dims, in.cos[i].Row(row), in.sin[i].Row(row));
      // V4.1 collapses the first site with (1, 0, 0, ...).
      HcCoefficients& first = in.first_coefficients[row];
      for (int stream = 0; stream < in.hc_mult; ++stream) first.pre[stream] = stream == 0 ? 1.0f : 0.0f;
      // Padding rows keep whatever their buffers hold: nothing of theirs may reach another row.
      if (in.step->valid[row] != 0) GatherRow(in.embed, in.step->token_id[row], in.hc_mult, in.hidden, in.streams.Row(row));
    }
  };
  builder_.Add(kRegionInputs, body, cost);
  if (!context_.model->engram_layers().empty()) HashNgrams();
}

template <class T>
void ForwardBuilder<T>::HashNgrams() {
  struct Arguments {
    const Step* step;
    const int32_t* token_map;
    int history_tokens;  // max_ngram_size - 1
    RowStore history;
    std::span<const NgramHashParameters> tables;
    View<int64_t>* rows;
    Store* store;

    // Compressed ids of a row's last tokens, from this step's rows or the slot's history.
    void Window(const Segment& segment, int64_t offset, int32_t* window) const noexcept {
      for (int distance = 0; distance <= history_tokens; ++distance) {
        const int64_t position = segment.start_pos + offset - distance;
        if (position < 0) {
          window[distance] = kDeadTokenId;
        } else if (distance <= offset) {
          window[distance] = token_map[step->token_id[segment.first_row + offset - distance]];
        } else {
          std::memcpy(&window[distance], history.RingRow(segment.slot, position), sizeof(int32_t));
        }
      }
    }
  };
  std::vector<NgramHashParameters> tables;
  for (const EngramLayer& layer : context_.model->engram_layers())
    tables.push_back({config_.engram_max_ngram_size, config_.engram_n_heads, layer.hash.multipliers.data(), layer.hash.primes.data(),
                      layer.hash.offsets.data(), context_.model->token_map()[static_cast<size_t>(config_.engram_pad_token_id)]});
  const Arguments arguments{step_,
                            context_.model->token_map().data(),
                            config_.engram_max_ngram_size - 1,
                            context_.cache->Store(0, CacheKind::kEngramHistory),
                            builder_.Keep(tables),
                            a_.engram_rows,
                            context_.model->engram_store()};
  builder_.Add(kRegionInputs, [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    const Range rows = worker.PartOf(in.step->num_rows);
    int32_t window[kNgramSizeMax];
    for (int32_t i = 0; i < in.step->num_segments; ++i) {
      const Segment& segment = in.step->segments[i];
      const int64_t begin = std::max<int64_t>(rows.begin, segment.first_row);
      const int64_t end = std::min<int64_t>(rows.end, segment.first_row + segment.num_rows);
      for (int64_t row = begin; row < end; ++row) {
        in.Window(segment, row - segment.first_row, window);
        for (size_t table = 0; table < in.tables.size(); ++table) NgramRows(in.tables[table], window, in.rows[table].Row(row));
      }
    }
  });
  // The history may only move on when every row was hashed.
  builder_.Add(kRegionInputs, [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    if (worker.worker_idx != 0) return;
    for (size_t table = 0; table < in.tables.size(); ++table)
      in.store->Issue(static_cast<int>(table), in.rows[table].Rows(0, in.step->num_rows));
    for (int32_t i = 0; i < in.step->num_segments; ++i) {
      const Segment& segment = in.step->segments[i];
      for (int64_t offset = std::max<int64_t>(0, segment.num_rows - in.history.rows_per_slot); offset < segment.num_rows; ++offset) {
        const int32_t id = in.token_map[in.step->token_id[segment.first_row + offset]];
        std::memcpy(in.history.RingRow(segment.slot, segment.start_pos + offset), &id, sizeof id);
      }
    }
  });
}

template <class T>
void ForwardBuilder<T>::Engram(int layer_idx) {
  const std::vector<EngramLayer>& layers = context_.model->engram_layers();
  const size_t table = static_cast<size_t>(
      std::find_if(layers.begin(), layers.end(), [&](const EngramLayer& engram) { return engram.layer_idx == layer_idx; }) -
      layers.begin());
  const Step* step = step_;
  Store* store = context_.model->engram_store();
  const int table_idx = static_cast<int>(table);
  const int64_t columns = config_.engram_columns(), head_dim = config_.engram_head_dim;
  const View<T> input = a_.engram_input;
  const RowList list = a_.layer_rows.Entering(*step_, layer_idx);

  builder_.Add(kRegionEngram, [=](const WorkerContext& worker) noexcept {
    if (worker.worker_idx == 0) store->Wait(table_idx);
  });
  const auto gather = [=](const WorkerContext& worker) noexcept {
    const Range items = worker.PartOf(list.size() * columns);
    for (int64_t item = items.begin; item < items.end; ++item) {
      const int64_t row = list[item / columns], column = item % columns;
      const StoredRow stored = store->Row(table_idx, row, column);
      if (!GatherQuantizedRow(stored.codes, stored.scales, head_dim, input.Row(row) + column * head_dim)) step->row_failed[row] = 1;
    }
  };
  const int64_t row_bytes = columns * (head_dim + head_dim / config_.activation_block());
  builder_.Add(kRegionEngram, gather, [=]() noexcept { return OpCost{list.size() * row_bytes, 0}; });
  const View<const T> quantized = QuantizedInput(kRegionEngram, list, input);
  EmitLinears<T>(builder_, kRegionEngram, rows_, {{list, layer(layer_idx).engram_wkv, quantized, a_.engram_kv, {}}});
  Gather();

  const StreamGateOptions options{config_.hc_mult, config_.hidden_size, config_.rms_norm_eps};
  const float* qk_weight = layers[table].qk_weight.data();
  const View<T> streams = a_.streams, kv = a_.engram_kv;
  const View<float> gates = a_.engram_gates;
  builder_.Add(kRegionEngram, [=](const WorkerContext& worker) noexcept {
    const Range mine = worker.PartOf(list.size());
    for (int64_t i = mine.begin; i < mine.end; ++i)
      StreamGate<T>(streams.Row(list[i]), kv.Row(list[i]), qk_weight, options, gates.Row(list[i]));
  });
}

template <class T>
void ForwardBuilder<T>::MixAndNorm(RowList rows, const HyperConnectionWeights& weights, HcCoefficients* coefficients,
                                   const HcCoefficients* lagged, const bf16* norm) {
  EmitLinears<T>(builder_, kRegionMix, rows_, {{rows, weights.fn, a_.streams, {}, a_.mixes}});
  Gather();
  struct Arguments {
    RowList rows;
    View<const T> streams;
    View<const float> mixes;
    const float* base;
    const float* scale;
    HcMixOptions options;
    float eps;
    int64_t hidden;
    const bf16* norm;
    HcCoefficients* coefficients;
    const HcCoefficients* collapse_with;
    View<T> x;
  };
  const Arguments arguments{rows,
                            a_.streams,
                            a_.mixes,
                            weights.base,
                            weights.scale,
                            {config_.hc_mult, config_.hc_sinkhorn_iters, config_.hc_eps},
                            config_.rms_norm_eps,
                            config_.hidden_size,
                            norm,
                            coefficients,
                            lagged == nullptr ? coefficients : lagged,
                            a_.x};
  builder_.Add(kRegionMix, [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    const Range mine = worker.PartOf(in.rows.size());
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const int64_t row = in.rows[i];
      const T* streams = in.streams.Row(row);
      const float mean = SumOfSquares(streams, in.streams.cols) / static_cast<float>(in.streams.cols);
      HcMix(in.mixes.Row(row), 1.0f / std::sqrt(mean + in.eps), in.base, in.scale, in.options, &in.coefficients[row]);
      T* x = in.x.Row(row);
      HcCollapse(streams, in.hidden, in.collapse_with[row].pre, in.options.hc_mult, in.hidden, x);
      RmsNorm(x, in.norm, in.eps, in.hidden, x);
    }
  });
}

template <class T>
void ForwardBuilder<T>::Expand(RowList rows, const HcCoefficients* coefficients) {
  const View<const T> y = a_.y;
  const View<T> streams = a_.streams;
  const int hc_mult = config_.hc_mult;
  const int64_t hidden = config_.hidden_size;
  builder_.Add(kRegionOutput, [=](const WorkerContext& worker) noexcept {
    ForRowColumns(worker, rows, hidden, [&](const RowColumns& item) noexcept {
      HcExpand(y.Row(item.row) + item.columns.begin, coefficients[item.row], hc_mult, item.columns.end - item.columns.begin,
               streams.Row(item.row) + item.columns.begin, hidden);
    });
  });
}

template <class T>
ForwardOutputs ForwardBuilder<T>::Head(const HcCoefficients* coefficients) {
  if (!v41_) EmitLinears<T>(builder_, kRegionHead, rows_, {{step_->LogitRows(), weights_.hc_head.fn, a_.streams, {}, a_.mixes}});
  struct Arguments {
    const Step* step;
    View<const T> streams;
    View<const float> mixes;
    const float* base;
    const float* scale;
    HcMixOptions options;
    float eps;
    int64_t hidden;
    const bf16* norm;
    const HcCoefficients* coefficients;  // V4.1: of the last site
    View<T> x;
  };
  const Arguments arguments{step_,
                            a_.streams,
                            a_.mixes,
                            weights_.hc_head.base,
                            weights_.hc_head.scale,
                            {config_.hc_mult, config_.hc_sinkhorn_iters, config_.hc_eps},
                            config_.rms_norm_eps,
                            config_.hidden_size,
                            weights_.norm,
                            coefficients,
                            a_.head_x};
  builder_.Add(kRegionHead, [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    const Range logit_rows = worker.PartOf(in.step->num_logit_rows);
    for (int64_t i = logit_rows.begin; i < logit_rows.end; ++i) {
      const int64_t row = in.step->logit_row[i];
      const T* streams = in.streams.Row(row);
      float trained[kHcMultMax];
      const float* weights = trained;
      if (in.coefficients != nullptr) {
        weights = in.coefficients[row].pre;
      } else {
        const float mean = SumOfSquares(streams, in.streams.cols) / static_cast<float>(in.streams.cols);
        HcHeadWeights(in.mixes.Row(row), 1.0f / std::sqrt(mean + in.eps), in.base, in.scale, in.options, trained);
      }
      T* x = in.x.Row(i);
      HcCollapse(streams, in.hidden, weights, in.options.hc_mult, in.hidden, x);
      RmsNorm(x, in.norm, in.eps, in.hidden, x);
    }
  });
  // The rows that want logits lie together here.
  const RowList outputs{nullptr, &step_->num_logit_rows};
  EmitLinears<T>(builder_, kRegionHead, rows_, {{outputs, weights_.head, a_.head_x, {}, a_.logits}});
  Gather();
  return {a_.logits};
}

template <class T>
void ForwardBuilder<T>::Gather() const {
  TSR_CHECK(context_.comm->size() == 1, "output rows of {} ranks", context_.comm->size());
}

template class ForwardBuilder<float>;
template class ForwardBuilder<bf16>;

}  // namespace tessera

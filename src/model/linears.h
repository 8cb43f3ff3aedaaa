// Linears that run together as one op: their output rows, laid end to end, are divided over the workers by the bytes each row reads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/quant_view.h"
#include "core/row_list.h"
#include "core/view.h"
#include "model/regions.h"
#include "plan/plan.h"

namespace tessera {

// out = w x for the listed rows of x and out: [max_rows, w.rows] in the activation type, or in fp32 where `out_float` is set instead.
template <class T>
struct Linear {
  RowList rows;
  QuantView w;
  View<const T> x;
  View<T> out;
  View<float> out_float;
};

// Emits one op. No list is longer than `max_rows`. Linears with the same input, rows and weight format share the packed activations, so put
// them next to each other.
template <class T>
void EmitLinears(PlanBuilder& builder, Region region, int32_t max_rows, const std::vector<Linear<T>>& linears);

}  // namespace tessera

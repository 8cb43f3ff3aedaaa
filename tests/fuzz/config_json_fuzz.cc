// The input is a config.json. A config that is accepted has a table of tensors whose sizes are positive and add up.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const ModelConfig config = ParseModelConfig(ParseJson({reinterpret_cast<const char*>(data), size}, "input"), "input");
    int64_t bytes = 0;
    VisitTensorTable(config, ExpertStorage::kE4M3, [&](const TensorSpec& spec) {
      const int64_t tensor_bytes = TensorBytes(spec);
      if (tensor_bytes <= 0 || __builtin_add_overflow(bytes, tensor_bytes, &bytes)) std::abort();
    });
    if (WeightBytesPerStep(config, 64).total() <= 0) std::abort();
  } catch (const Error&) {
  }
  return 0;
}

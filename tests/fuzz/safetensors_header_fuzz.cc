// The input is a safetensors file. Whatever it says, the reader returns tensors that lie inside it or throws Error.
#include <cstdint>
#include <cstdlib>

#include "core/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const tessera::SafetensorsHeader header = tessera::ParseSafetensorsHeader({data, size}, "input");
    for (const tessera::TensorEntry& tensor : header.tensors) {
      if (tensor.begin > tensor.end || header.data_start + tensor.end > size) std::abort();
    }
  } catch (const tessera::Error&) {
  }
  return 0;
}

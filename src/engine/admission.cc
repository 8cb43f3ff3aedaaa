#include "engine/admission.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "model/sequence_state.h"

namespace tessera {

int64_t ChooseCacheBudget(const CacheDemand& demand, const AvailableMemory& available) {
  const int64_t room = available.bytes - available.bytes / 16 - demand.other_bytes;
  return std::clamp(room, demand.bytes_per_sequence, demand.bytes_per_sequence * demand.max_seqs);
}

Admission::Admission(std::vector<CacheLayout> layouts, int64_t budget_bytes) : layouts_(std::move(layouts)), budget_bytes_(budget_bytes) {}

int64_t Admission::BytesFor(int64_t num_tokens) const { return ResidentBytes(layouts_, num_tokens); }

double Admission::bytes_per_token() const { return StateBytesPerToken(layouts_); }

void Admission::Reserve(int64_t bytes) {
  TSR_CHECK(bytes >= 0 && bytes <= free_bytes(), "{} bytes of {} free ones", bytes, free_bytes());
  reserved_bytes_ += bytes;
}

void Admission::Return(int64_t bytes) {
  TSR_CHECK(bytes >= 0 && bytes <= reserved_bytes_, "{} bytes of {} reserved ones", bytes, reserved_bytes_);
  reserved_bytes_ -= bytes;
}

}  // namespace tessera

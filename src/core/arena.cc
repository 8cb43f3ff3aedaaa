#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace tessera {

Arena::Arena(std::string name, size_t capacity_bytes) : name_(std::move(name)) {
  if (capacity_bytes > 0) AddBlock(capacity_bytes);
}

Arena::~Arena() {
  for (const Block& block : blocks_) munmap(block.data, block.bytes);
}

void Arena::AddBlock(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) Fail("cannot reserve {} bytes of address space for {}: {}", bytes, name_, std::strerror(errno));
  blocks_.push_back({static_cast<uint8_t*>(data), bytes});
  capacity_ += bytes;
  block_used_ = 0;
}

void* Arena::AllocateBytes(size_t bytes) {
  TSR_CHECK(!sealed_, "arena {} is sealed; {} more bytes were asked for", name_, bytes);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool fits = rounded >= bytes && (kind_ != Kind::kFixed || rounded <= capacity_ - used_);
  TSR_CHECK(fits, "arena {}: {} of {} bytes used, {} more asked for", name_, used_, capacity_, bytes);
  used_ += rounded;
  if (kind_ == Kind::kMeasuring) return reinterpret_cast<void*>(kAlignment);  // in the page that is never mapped
  if (kind_ == Kind::kGrowing && (blocks_.empty() || rounded > blocks_.back().bytes - block_used_))
    AddBlock(std::max(rounded, kBlockBytes));
  if (blocks_.empty()) return nullptr;  // nothing of nothing
  block_used_ += rounded;
  return blocks_.back().data + block_used_ - rounded;
}

void Arena::Rewind(size_t mark) {
  TSR_CHECK(kind_ != Kind::kGrowing && mark <= used_, "arena {}: mark {} lies beyond the {} bytes used", name_, mark, used_);
  used_ = mark;
  block_used_ = mark;
}

}  // namespace tessera

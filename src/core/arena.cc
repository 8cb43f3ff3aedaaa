#include "core/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace tessera {

Arena::Arena(std::string name, size_t capacity_bytes) : name_(std::move(name)), capacity_(capacity_bytes) {
  if (capacity_ == 0) return;
  void* base = mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    Fail("cannot reserve {} bytes of address space for {}: {}", capacity_, name_, std::strerror(errno));
  base_ = static_cast<uint8_t*>(base);
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, capacity_);
}

void* Arena::AllocateBytes(size_t bytes) {
  TSR_CHECK(!sealed_, "arena {} is sealed; {} more bytes were asked for", name_, bytes);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  TSR_CHECK(rounded >= bytes && rounded <= capacity_ - used_, "arena {}: {} of {} bytes used, {} more asked for", name_, used_,
            capacity_, bytes);
  void* result = base_ + used_;
  used_ += rounded;
  return result;
}

void Arena::Rewind(size_t mark) {
  TSR_CHECK(mark <= used_, "arena {}: mark {} lies beyond the {} bytes used", name_, mark, used_);
  used_ = mark;
}

}  // namespace tessera

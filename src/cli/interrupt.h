// Ctrl-C as a flag that loops look at, so that a run ends with the text so far.
#pragma once

namespace tessera {

// While one exists, SIGINT and SIGTERM set a flag instead of ending the process; a second SIGINT ends it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  int signal() const;  // 0: none came
};

}  // namespace tessera

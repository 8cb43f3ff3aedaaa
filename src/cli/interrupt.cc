#include "cli/interrupt.h"

#include <csignal>

namespace tessera {
namespace {

volatile std::sig_atomic_t last_signal = 0;

void OnSignal(int signal) {
  last_signal = signal;
  std::signal(signal, SIG_DFL);  // the next one ends the process
}

}  // namespace

InterruptGuard::InterruptGuard() {
  last_signal = 0;
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int InterruptGuard::signal() const { return last_signal; }

}  // namespace tessera

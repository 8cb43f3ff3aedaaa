#include "cli/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace tessera {
namespace {

volatile std::sig_atomic_t last_signal = 0;
int num_guards = 0;
InterruptGuard::Mode active_mode = InterruptGuard::Mode::kOnce;

void OnSignal(int signal) {
  if (last_signal != SIGTERM) last_signal = signal;  // who asks for the end of the program is not overruled
}

void HandleSignals(InterruptGuard::Mode mode) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // Writes must not break off: their text would be lost.
  action.sa_flags = mode == InterruptGuard::Mode::kBreakReads ? 0 : SA_RESTART;
  if (mode == InterruptGuard::Mode::kOnce) action.sa_flags |= static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  active_mode = mode;
}

}  // namespace

InterruptGuard::InterruptGuard(Mode mode) : outer_mode_(active_mode) {
  if (num_guards++ == 0) last_signal = 0;
  HandleSignals(mode);
}

InterruptGuard::~InterruptGuard() {
  if (--num_guards > 0) {
    HandleSignals(outer_mode_);
    return;
  }
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int InterruptGuard::signal() { return last_signal; }

void InterruptGuard::ForgetInterrupt() {
  if (last_signal == SIGINT) last_signal = 0;
}

}  // namespace tessera

#include "cli/interrupt.h"

#include <poll.h>

#include <csignal>

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
  action.sa_flags = SA_RESTART;  // writes must not break off: their text would be lost
  if (mode == InterruptGuard::Mode::kOnce) action.sa_flags |= static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
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
  } else {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
}

int InterruptGuard::signal() { return last_signal; }

void InterruptGuard::ForgetInterrupt() {
  if (last_signal == SIGINT) last_signal = 0;
}

bool InterruptGuard::WaitForInput(int file) {
  // Signals come in only while ppoll waits: none slips in between the look at the flag and the wait.
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  pollfd input = {file, POLLIN, 0};
  while (last_signal == 0 && ppoll(&input, 1, nullptr, &before) < 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return last_signal == 0;
}

}  // namespace tessera

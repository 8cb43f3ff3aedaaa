// Ctrl-C as a flag that loops look at, so that a run ends with the text so far.
#pragma once

namespace tessera {

// While one exists, SIGINT and SIGTERM set a flag instead of ending the process. Guards nest: the inner one says what signals do, the flag
// is one for all.
class InterruptGuard {
 public:
  enum class Mode {
    kOnce,  // a second signal of the kind ends the process: a long step can be given up
    kEach,  // every one sets the flag
  };
  explicit InterruptGuard(Mode mode);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static int signal();  // 0: none came
  // Forgets a SIGINT that has been answered; a SIGTERM stays.
  static void ForgetInterrupt();
  // Waits until a file has something to read (true) or the flag is set (false).
  static bool WaitForInput(int file);

 private:
  Mode outer_mode_;
};

}  // namespace tessera

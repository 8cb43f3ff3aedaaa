// A forked child that runs part of its work where the kernel allows nothing but futexes, and says which system call it made otherwise.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <new>

namespace tessera::testing {

// What the child leaves behind, in memory that both see.
struct ChildVerdict {
  bool finished = false;
  bool refused = false;      // the host grants no filter
  int forbidden_call = -1;   // number of the system call that ended it
  int64_t counters[4] = {};  // whatever the test counts
  char error[256] = {};      // an exception of the child's
};

inline ChildVerdict* child_verdict = nullptr;  // for the handler

inline void OnForbiddenCall(int, siginfo_t* info, void*) {
  child_verdict->forbidden_call = info->si_syscall;
  _exit(3);
}

// From here on every thread of this process may wait on and wake futexes and end the process. Any other system call ends it and is named
// in the verdict. False when the host refuses.
inline bool AllowFutexesOnly() {
  struct sigaction action {};
  action.sa_sigaction = OnForbiddenCall;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// Page faults of this process so far, all threads.
inline int64_t NumPageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// Ends the child, its work done, before destructors make system calls.
[[noreturn]] inline void FinishChild() {
  child_verdict->finished = true;
  _exit(0);
}

// Runs body(verdict) in a child. The body makes threads and opens files itself: it shares none with the parent.
template <class F>
ChildVerdict RunInChild(F&& body) {
  void* shared = mmap(nullptr, sizeof(ChildVerdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return {};
  child_verdict = new (shared) ChildVerdict;
  const pid_t child = fork();
  if (child == 0) {
    try {
      body(*child_verdict);
      FinishChild();
    } catch (const std::exception& error) {
      for (size_t i = 0; i + 1 < sizeof child_verdict->error && error.what()[i] != 0; ++i) child_verdict->error[i] = error.what()[i];
    }
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
  const ChildVerdict verdict = *child_verdict;
  munmap(shared, sizeof(ChildVerdict));
  return verdict;
}

}  // namespace tessera::testing

// Errors, three kinds on one page: a programmer's error aborts with values (TSR_CHECK), an operating error is thrown once as
// tessera::Error where it is first known (Fail), and a request's error is a status in its reply. Kernels and replays use neither:
// they are noexcept and take their arguments as true.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tessera {

// An operating error: one line that says what, where (file, tensor, rank) and what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// An error of one request: an HTTP status and a line for its sender. Whoever serves requests turns it into the reply.
class RequestError : public Error {
 public:
  RequestError(int status, const std::string& message) : Error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

template <class... Args>
[[noreturn]] void FailRequest(int status, fmt::format_string<Args...> format, Args&&... args) {
  throw RequestError(status, fmt::format(format, std::forward<Args>(args)...));
}

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& values);
inline std::string CheckValues() { return {}; }
template <class... Args>
std::string CheckValues(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace internal

}  // namespace tessera

// Aborts with file, line, condition and the formatted values when the condition is false. Always on.
#define TSR_CHECK(condition, ...)                                                             \
  do {                                                                                        \
    if (__builtin_expect(!(condition), 0))                                                    \
      ::tessera::internal::CheckFailed(__FILE__, __LINE__, #condition,                        \
                                       ::tessera::internal::CheckValues(__VA_ARGS__));        \
  } while (0)

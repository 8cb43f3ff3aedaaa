// Under a sanitizer a test runs 5 to 50 times slower; tests with large loops take smaller ones there.
#pragma once

namespace tessera {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReducedSizes = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kReducedSizes = true;
#else
constexpr bool kReducedSizes = false;
#endif
#else
constexpr bool kReducedSizes = false;
#endif

}  // namespace tessera

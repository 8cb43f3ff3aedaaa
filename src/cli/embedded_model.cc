#include "cli/embedded_model.h"

#include <filesystem>

#include "core/check.h"

namespace tessera {

std::string EmbeddedModelDir() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {"../../models/tiny", "../share/tessera/models/tiny"}) {
    const std::filesystem::path dir = (program / relative).lexically_normal();
    if (std::filesystem::exists(dir / "config.json", error)) return dir.string();
  }
  Fail("the embedded model is not where the build put it ({}/../../models/tiny): name one with -m", program.string());
}

}  // namespace tessera

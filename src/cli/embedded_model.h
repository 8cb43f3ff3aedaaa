// Where the model that comes with the program lies: beside the build, or in the share directory of an installation.
#pragma once

#include <string>

namespace tessera {

// Throws Error when it is nowhere.
std::string EmbeddedModelDir();

}  // namespace tessera

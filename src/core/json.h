// The one door through which JSON from outside enters: bounded in size and depth before the parser allocates anything.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

using Json = nlohmann::ordered_json;  // keys keep the order of the text

struct JsonLimits {
  size_t bytes_max = size_t{64} << 20;
  int depth_max = 64;
};

// Parses `text`; throws Error "<what>: ..." with the byte offset when it is not JSON or exceeds the limits. `what` names the source.
Json ParseJson(std::string_view text, const std::string& what, JsonLimits limits = {});
Json ReadJsonFile(const std::string& path, JsonLimits limits = {});

// `text` from a file as it may stand in a one-line message: control bytes become '?', and what exceeds `bytes_max` is cut ("...").
std::string OneLine(std::string_view text, size_t bytes_max = 160);

}  // namespace tessera

#include "core/json.h"

#include "core/check.h"
#include "core/file.h"

namespace tessera {
namespace {

// The parser recurses while it destroys what it built, so depth is bounded on the text itself, strings skipped.
void CheckDepth(std::string_view text, const std::string& what, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) Fail("{}: JSON nested deeper than {} levels at byte {}", what, depth_max, i);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& what, JsonLimits limits) {
  if (text.size() > limits.bytes_max) Fail("{}: {} bytes of JSON, at most {} are allowed", what, text.size(), limits.bytes_max);
  CheckDepth(text, what, limits.depth_max);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    Fail("{}: not valid JSON at byte {}", what, error.byte);
  } catch (const nlohmann::json::exception& error) {  // a number beyond the range of a double
    Fail("{}: not valid JSON: {}", what, OneLine(error.what()));
  }
}

Json ReadJsonFile(const std::string& path, JsonLimits limits) {
  return ParseJson(ReadFile(path, limits.bytes_max), path, limits);
}

std::string OneLine(std::string_view text, size_t bytes_max) {
  std::string line(text.substr(0, bytes_max));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > bytes_max) line += "...";
  return line;
}

}  // namespace tessera

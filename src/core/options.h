// One table per options struct drives defaults, parsing, help, printing and rejection: an option is written once, and the command line,
// JSON and Python all walk the same table. A struct offers a plain function that binds its members:
//
//   OptionTable Fields(EngineOptions& options) {
//     return {{"threads", "workers per rank; 0 = physical cores", &options.threads, {0, 1024}},
//             {"numerics", "rounding of activations", EnumOf(&options.numerics, {"bf16", "reference", "fp32"})}};
//   }
//
// Defaults are what a default-constructed struct holds. Names use underscores (JSON, Python); the command line spells them --with-dashes.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.h"

namespace tessera {

// An enum whose values count from 0, by name.
struct EnumOption {
  std::vector<std::string_view> names;
  std::function<int()> get;
  std::function<void(int)> set;
};
template <class Enum>
EnumOption EnumOf(Enum* value, std::initializer_list<std::string_view> names) {
  return {names, [value] { return static_cast<int>(*value); }, [value](int index) { *value = static_cast<Enum>(index); }};
}

using OptionValue = std::variant<bool*, int*, int64_t*, uint64_t*, float*, std::string*, std::vector<std::string>*, EnumOption>;

// Inclusive; for numbers only.
struct OptionBounds {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

struct OptionField {
  std::string_view name;
  std::string_view help;  // one sentence or less, for --help and docs
  OptionValue value;
  OptionBounds bounds = {};
};
using OptionTable = std::vector<OptionField>;

// The field of this name, dashes and underscores alike; throws Error naming the nearest known one.
const OptionField& FindOption(const OptionTable& table, std::string_view name);

// Sets the field from text; a list takes one more element. Throws Error "--name: ..." for text that is no such value or out of bounds.
void ParseOption(const OptionField& field, std::string_view text);
// Sets the field from a JSON value of its type; a list is replaced. Throws Error "<what>: name: ...".
void ParseOption(const OptionField& field, const Json& value, const std::string& what);
// Sets every key of a JSON object; throws Error "<what>: ..." naming the nearest known field for an unknown one.
void ParseOptions(const OptionTable& table, const Json& object, const std::string& what);

std::string FormatOption(const OptionField& field);    // the value as text that ParseOption takes
std::string OptionFlag(const OptionField& field);      // "--max-seqs"
std::string OptionOperand(const OptionField& field);   // what follows the flag: "N", "X", "TEXT", "bf16|reference|fp32", "" for a bool
Json OptionsToJson(const OptionTable& table);
std::string OptionsHelp(const OptionTable& table);     // a line per field: flag, operand, sentence, default

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from `name`, the first of equals; case and dash versus
// underscore do not count. Empty when there are no candidates.
std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace tessera

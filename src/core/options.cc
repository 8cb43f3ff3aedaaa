#include "core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/check.h"

namespace tessera {
namespace {

char Fold(char c) {
  if (c == '-') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string Fold(std::string_view text) {
  std::string folded(text);
  for (char& c : folded) c = Fold(c);
  return folded;
}

// Edit distance with swaps of neighbours, three rows of the usual table at a time.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::vector<std::string_view> Names(const OptionTable& table) {
  std::vector<std::string_view> names;
  for (const OptionField& field : table) names.push_back(field.name);
  return names;
}

const OptionField* FindOrNull(const OptionTable& table, std::string_view name) {
  const std::string folded = Fold(name);
  for (const OptionField& field : table)
    if (Fold(field.name) == folded) return &field;
  return nullptr;
}

template <class Number>
void CheckBounds(Number value, const OptionField& field, const std::string& where) {
  if (static_cast<double>(value) < field.bounds.min) Fail("{}: {} is below the least, {}", where, value, field.bounds.min);
  if (static_cast<double>(value) > field.bounds.max) Fail("{}: {} is above the most, {}", where, value, field.bounds.max);
}

template <class Number>
Number ParseNumber(std::string_view text, const std::string& where) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) Fail("{}: '{}' is out of range", where, text);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  const char* const kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  if (!whole || !std::isfinite(static_cast<double>(value))) Fail("{}: '{}' is not {}", where, text, kind);
  return value;
}

bool ParseBool(std::string_view text, const std::string& where) {
  if (text == "true" || text == "on") return true;
  if (text == "false" || text == "off") return false;
  Fail("{}: '{}' is neither true nor false", where, text);
}

void SetEnum(const EnumOption& option, std::string_view text, const std::string& where) {
  const auto found = std::find(option.names.begin(), option.names.end(), text);
  if (found == option.names.end())
    Fail("{}: '{}' is none of {} (nearest: {})", where, text, fmt::join(option.names, ", "), NearestName(text, option.names));
  option.set(static_cast<int>(found - option.names.begin()));
}

// The integer of a JSON number in the range of Number; a float is not silently cut.
template <class Number>
Number IntegerOf(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) Fail("{}: {} is not a whole number", where, value.dump());
  return ParseNumber<Number>(value.dump(), where);
}

}  // namespace

const OptionField& FindOption(const OptionTable& table, std::string_view name) {
  const OptionField* field = FindOrNull(table, name);
  if (field == nullptr) {
    std::string nearest(NearestName(name, Names(table)));
    std::replace(nearest.begin(), nearest.end(), '_', '-');
    Fail("unknown option --{} (nearest: --{})", name, nearest);
  }
  return *field;
}

void ParseOption(const OptionField& field, std::string_view text) {
  const std::string where = OptionFlag(field);
  std::visit(
      [&](const auto& target) {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, EnumOption>) {
          SetEnum(target, text, where);
        } else if constexpr (std::is_same_v<Target, bool*>) {
          *target = ParseBool(text, where);
        } else if constexpr (std::is_same_v<Target, std::string*>) {
          *target = text;
        } else if constexpr (std::is_same_v<Target, std::vector<std::string>*>) {
          target->emplace_back(text);
        } else {
          const auto value = ParseNumber<std::remove_pointer_t<Target>>(text, where);
          CheckBounds(value, field, where);
          *target = value;
        }
      },
      field.value);
}

void ParseOption(const OptionField& field, const Json& value, const std::string& what) {
  const std::string where = fmt::format("{}: {}", what, field.name);
  const auto string_of = [&where](const Json& element) {
    if (!element.is_string()) Fail("{}: {} is not a string", where, element.dump());
    return element.get<std::string>();
  };
  std::visit(
      [&](const auto& target) {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, EnumOption>) {
          SetEnum(target, string_of(value), where);
        } else if constexpr (std::is_same_v<Target, bool*>) {
          if (!value.is_boolean()) Fail("{}: {} is neither true nor false", where, value.dump());
          *target = value.get<bool>();
        } else if constexpr (std::is_same_v<Target, std::string*>) {
          *target = string_of(value);
        } else if constexpr (std::is_same_v<Target, std::vector<std::string>*>) {
          if (!value.is_array()) Fail("{}: {} is not a list of strings", where, value.dump());
          std::vector<std::string> elements;
          for (const Json& element : value) elements.push_back(string_of(element));
          *target = std::move(elements);
        } else if constexpr (std::is_same_v<Target, float*>) {
          if (!value.is_number()) Fail("{}: {} is not a number", where, value.dump());
          CheckBounds(value.get<double>(), field, where);
          *target = value.get<float>();
        } else {
          const auto number = IntegerOf<std::remove_pointer_t<Target>>(value, where);
          CheckBounds(number, field, where);
          *target = number;
        }
      },
      field.value);
}

void ParseOptions(const OptionTable& table, const Json& object, const std::string& what) {
  if (!object.is_object()) Fail("{}: a JSON object was expected", what);
  for (const auto& [name, value] : object.items()) {
    const OptionField* field = FindOrNull(table, name);
    if (field == nullptr) Fail("{}: unknown field '{}' (nearest: '{}')", what, name, NearestName(name, Names(table)));
    ParseOption(*field, value, what);
  }
}

std::string FormatOption(const OptionField& field) {
  return std::visit(
      [](const auto& source) -> std::string {
        using Source = std::decay_t<decltype(source)>;
        if constexpr (std::is_same_v<Source, EnumOption>) {
          return std::string(source.names[static_cast<size_t>(source.get())]);
        } else if constexpr (std::is_same_v<Source, std::vector<std::string>*>) {
          return fmt::format("{}", fmt::join(*source, ","));
        } else {
          return fmt::format("{}", *source);
        }
      },
      field.value);
}

std::string OptionFlag(const OptionField& field) {
  std::string flag = "--" + std::string(field.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string OptionOperand(const OptionField& field) {
  if (const EnumOption* option = std::get_if<EnumOption>(&field.value)) return fmt::format("{}", fmt::join(option->names, "|"));
  if (std::holds_alternative<bool*>(field.value)) return "";
  if (std::holds_alternative<float*>(field.value)) return "X";
  const bool is_text =
      std::holds_alternative<std::string*>(field.value) || std::holds_alternative<std::vector<std::string>*>(field.value);
  return is_text ? "TEXT" : "N";
}

Json OptionsToJson(const OptionTable& table) {
  Json object = Json::object();
  for (const OptionField& field : table)
    std::visit(
        [&](const auto& source) {
          using Source = std::decay_t<decltype(source)>;
          if constexpr (std::is_same_v<Source, EnumOption>) {
            object[std::string(field.name)] = FormatOption(field);
          } else {
            object[std::string(field.name)] = *source;
          }
        },
        field.value);
  return object;
}

std::string OptionsHelp(const OptionTable& table) {
  size_t width = 0;
  for (const OptionField& field : table) width = std::max(width, OptionFlag(field).size() + 1 + OptionOperand(field).size());
  std::string text;
  for (const OptionField& field : table) {
    const std::string value = FormatOption(field);
    const std::string shown = value.empty() || value == "false" ? "" : " [" + value + "]";
    text += fmt::format("  {:<{}}  {}{}\n", OptionFlag(field) + " " + OptionOperand(field), width, field.help, shown);
  }
  return text;
}

std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& candidates) {
  const std::string folded = Fold(name);
  std::string_view nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const std::string_view candidate : candidates) {
    const size_t edits = EditDistance(folded, Fold(candidate));
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tessera

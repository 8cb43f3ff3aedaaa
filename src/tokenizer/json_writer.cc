#include "tokenizer/json_writer.h"

#include <fmt/format.h>

#include <charconv>

namespace tessera {
namespace {

constexpr int kFixedBelowExponent = 16;  // 1e16 and above have an exponent

// Rearranges the shortest round-trip digits "d.ddde[+-]xx".
void AppendDouble(double value, DoubleStyle style, std::string* out) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  if (text.front() == '-') {
    out->push_back('-');
    text.remove_prefix(1);
  }
  const size_t mark = text.find('e');
  std::string digits(text.substr(0, 1));
  if (mark > 2) digits += text.substr(2, mark - 2);
  const bool is_negative = text[mark + 1] == '-';
  int exponent = 0;
  std::from_chars(text.data() + mark + 2, text.data() + text.size(), exponent);
  if (is_negative) exponent = -exponent;

  const int fixed_from = style == DoubleStyle::kPadded ? -4 : -5;
  if (exponent < fixed_from || exponent >= kFixedBelowExponent) {
    out->push_back(digits[0]);
    if (digits.size() > 1) out->append(".").append(digits, 1);
    const int magnitude = exponent < 0 ? -exponent : exponent;
    out->append(exponent < 0 ? "e-" : "e+");
    out->append(style == DoubleStyle::kPadded ? fmt::format("{:02}", magnitude) : fmt::format("{}", magnitude));
  } else if (exponent < 0) {
    out->append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const auto num_whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < num_whole) digits.append(num_whole - digits.size(), '0');
    out->append(digits, 0, num_whole).push_back('.');
    out->append(digits.size() > num_whole ? digits.substr(num_whole) : "0");
  }
}

}  // namespace

void AppendJsonEscaped(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\n': out->append("\\n"); break;
      case '\r': out->append("\\r"); break;
      case '\t': out->append("\\t"); break;
      case '\b': out->append("\\b"); break;
      case '\f': out->append("\\f"); break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out->append(fmt::format("\\u{:04x}", static_cast<uint8_t>(c)));
        } else {
          out->push_back(c);
        }
    }
  }
}

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendJsonEscaped(text, out);
  out->push_back('"');
}

void AppendJson(const Json& value, DoubleStyle style, std::string* out) {
  switch (value.type()) {
    case Json::value_t::string: AppendJsonString(value.get_ref<const std::string&>(), out); break;
    case Json::value_t::boolean: out->append(value.get<bool>() ? "true" : "false"); break;
    case Json::value_t::number_unsigned: out->append(fmt::format("{}", value.get<uint64_t>())); break;
    case Json::value_t::number_integer: {
      const auto integer = value.get<int64_t>();
      out->append(integer == 0 ? "-0.0" : fmt::format("{}", integer));
      break;
    }
    case Json::value_t::number_float: AppendDouble(value.get<double>(), style, out); break;
    case Json::value_t::array: {
      std::string_view separator = "[";
      for (const Json& element : value) {
        out->append(separator);
        AppendJson(element, style, out);
        separator = ", ";
      }
      out->append(value.empty() ? "[]" : "]");
      break;
    }
    case Json::value_t::object: {
      std::string_view separator = "{";
      for (const auto& [key, member] : value.items()) {
        out->append(separator);
        AppendJsonString(key, out);
        out->append(": ");
        AppendJson(member, style, out);
        separator = ", ";
      }
      out->append(value.empty() ? "{}" : "}");
      break;
    }
    default: out->append("null"); break;
  }
}

}  // namespace tessera

// Is a checkpoint what its config says? First the table (names, dtypes, shapes), then the content (scales, codes).
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include "core/check.h"
#include "core/json.h"
#include "model/weights.h"

namespace tessera {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Collects problems up to kProblemsMax; a checkpoint of the wrong model would have a hundred thousand.
class ProblemList {
 public:
  template <class... Args>
  void Add(std::string_view tensor, const std::string* file, fmt::format_string<Args...> format, Args&&... args) {
    if (problems_.size() >= kProblemsMax) {
      ++num_left_out_;
      return;
    }
    const std::string where = file == nullptr ? "" : *file + ": ";
    problems_.push_back(
        {std::string(tensor), fmt::format("{}{}: {}", where, OneLine(tensor), fmt::format(format, std::forward<Args>(args)...))});
  }

  std::vector<CheckpointProblem> Take() {
    std::sort(problems_.begin(), problems_.end(), [](const CheckpointProblem& a, const CheckpointProblem& b) {
      return a.tensor != b.tensor ? a.tensor < b.tensor : a.message < b.message;
    });
    if (num_left_out_ > 0) problems_.push_back({"", fmt::format("{} more problems were left out", num_left_out_)});
    return std::move(problems_);
  }

 private:
  std::vector<CheckpointProblem> problems_;
  size_t num_left_out_ = 0;
};

// The experts of each token are indices into the router's scores and into the list of experts: checked before anything follows them.
void CheckTokenToExpert(const std::string& name, const TensorData& data, int num_experts, ProblemList& problems) {
  for (size_t i = 0; i * 8 < data.bytes.size(); ++i) {
    int64_t expert_idx = 0;
    std::memcpy(&expert_idx, data.bytes.data() + i * 8, 8);
    if (expert_idx >= 0 && expert_idx < num_experts) continue;
    problems.Add(name, data.file, "entry {} is expert {}, there are {}", i, expert_idx, num_experts);
    return;
  }
}

bool FitsTable(const TensorSpec& spec, const TensorData& data, ProblemList& problems) {
  const bool dtype_fits = std::find(spec.dtypes.begin(), spec.dtypes.end(), data.dtype) != spec.dtypes.end();
  if (!dtype_fits) {
    std::vector<std::string_view> expected;
    for (const Dtype dtype : spec.dtypes) expected.push_back(DtypeName(dtype));
    problems.Add(spec.name, data.file, "dtype {}, expected {}", DtypeName(data.dtype), fmt::join(expected, " or "));
  }
  if (data.shape != spec.shape) problems.Add(spec.name, data.file, "shape {}, expected {}", ShapeText(data.shape), ShapeText(spec.shape));
  return dtype_fits && data.shape == spec.shape;
}

void CheckTable(const ModelConfig& config, const Checkpoint& checkpoint, ProblemList& problems) {
  // Names point into the checkpoint, so that a config that claims a million tensors costs no memory for them.
  std::unordered_set<std::string_view> known;
  VisitTensorTable(config, StorageOfExperts(checkpoint), [&](const TensorSpec& spec) {
    if (spec.group == WeightGroup::kDraft) return;
    const auto found = checkpoint.tensors().find(spec.name);
    if (found == checkpoint.tensors().end()) {
      if (spec.claimed) problems.Add(spec.name, nullptr, "missing; expected {} {}", DtypeName(spec.dtypes.front()), ShapeText(spec.shape));
      return;
    }
    known.insert(found->first);
    const TensorData& data = found->second;
    const bool fits = FitsTable(spec, data, problems);
    if (fits && spec.dtypes.front() == Dtype::kI64) CheckTokenToExpert(spec.name, data, config.n_routed_experts, problems);
  });
  for (const auto& [name, data] : checkpoint.tensors()) {
    if (!known.contains(name) && !IsKnownExtra(name)) problems.Add(name, data.file, "not a tensor of this model");
  }
}

// A scale is what its name and dtype say; U8 is how some tools store the same bytes.
bool IsScale(const std::string& name, const TensorData& data) {
  return data.dtype == Dtype::kF8E8M0 || (data.dtype == Dtype::kU8 && name.ends_with(".scale"));
}

std::optional<size_t> FindNanScale(std::span<const uint8_t> scales) {
  const void* found = scales.empty() ? nullptr : std::memchr(scales.data(), 255, scales.size());
  if (found == nullptr) return std::nullopt;
  return static_cast<size_t>(static_cast<const uint8_t*>(found) - scales.data());
}

// Position of a code as "row 3, column 17", what a person looks for in the tensor.
std::string PositionText(size_t code_idx, const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[1] == 0) return fmt::format("position {}", code_idx);
  const size_t cols = static_cast<size_t>(shape[1]);
  return fmt::format("row {}, column {}", code_idx / cols, code_idx % cols);
}

// First code that is no finite number. Exponents of all ones are infinities and NaNs in BF16 and F32; e4m3 has the two codes 0x7f, 0xff.
std::optional<size_t> FindNotFinite(const TensorData& data) {
  const uint8_t* bytes = data.bytes.data();
  if (data.dtype == Dtype::kF8E4M3) {
    for (size_t i = 0; i < data.bytes.size(); ++i) {
      if ((bytes[i] & 0x7f) == 0x7f) return i;
    }
  } else if (data.dtype == Dtype::kBF16) {
    for (size_t i = 0; i * 2 < data.bytes.size(); ++i) {
      if ((bytes[2 * i + 1] & 0x7f) == 0x7f && (bytes[2 * i] & 0x80) != 0) return i;
    }
  } else if (data.dtype == Dtype::kF32) {
    for (size_t i = 0; i * 4 < data.bytes.size(); ++i) {
      if ((bytes[4 * i + 3] & 0x7f) == 0x7f && (bytes[4 * i + 2] & 0x80) != 0) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<CheckpointProblem> VerifyTable(const ModelConfig& config, const Checkpoint& checkpoint) {
  ProblemList problems;
  CheckTable(config, checkpoint, problems);
  return problems.Take();
}

std::vector<CheckpointProblem> VerifyCheckpoint(const ModelConfig& config, const Checkpoint& checkpoint, bool deep) {
  ProblemList problems;
  CheckTable(config, checkpoint, problems);
  for (const auto& [name, data] : checkpoint.tensors()) {
    if (IsScale(name, data)) {
      const std::optional<size_t> nan = FindNanScale(data.bytes);
      if (nan) problems.Add(name, data.file, "scale byte 255 (NaN) at {}", PositionText(*nan, data.shape));
    } else if (deep) {
      const std::optional<size_t> code = FindNotFinite(data);
      if (code) problems.Add(name, data.file, "NaN or infinity ({}) at {}", DtypeName(data.dtype), PositionText(*code, data.shape));
    }
  }
  return problems.Take();
}

std::vector<CheckpointProblem> VerifyFiles(const std::string& model_dir) {
  std::string complaint;
  try {
    Checkpoint::Open(model_dir);
    return {};
  } catch (const Error& error) {
    complaint = error.what();
  }
  std::vector<CheckpointProblem> problems;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir, error)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".safetensors")) continue;
    try {
      ParseSafetensorsHeader(MappedFile(path).bytes(), path);
    } catch (const Error& refusal) {
      problems.push_back({"", refusal.what()});
    }
  }
  const auto is_complaint = [&](const CheckpointProblem& problem) { return problem.message == complaint; };
  if (std::none_of(problems.begin(), problems.end(), is_complaint)) problems.push_back({"", complaint});
  std::sort(problems.begin(), problems.end(), [](const auto& a, const auto& b) { return a.message < b.message; });
  return problems;
}

void RefuseNanScales(const Checkpoint& checkpoint) {
  for (const auto& [name, data] : checkpoint.tensors()) {
    if (!IsScale(name, data) || IsKnownExtra(name) || name.ends_with(".engram.embed.scale")) continue;
    const std::optional<size_t> nan = FindNanScale(data.bytes);
    if (nan) Fail("{}: {}: scale byte 255 (NaN) at {}", *data.file, OneLine(name), PositionText(*nan, data.shape));
  }
}

}  // namespace tessera

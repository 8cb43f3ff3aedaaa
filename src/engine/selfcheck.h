// What a user runs to know that this machine and build compute the right thing.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct CheckResult {
  std::string name;
  bool passed = false;
  std::string detail;  // what was compared and how far it was off
};

// Kernels of every tier the CPU has against the scalar tier, then the model in `model_dir` on every tier: its greedy answer must be the
// same on 1 and more workers to the bit, and across tiers within the rounding of the format. Restores the active tier.
std::vector<CheckResult> RunSelfcheck(const std::string& model_dir);

}  // namespace tessera

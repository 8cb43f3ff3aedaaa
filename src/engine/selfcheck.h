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

// The matrix products of every tier this CPU has against the exact ones, then the model in `model_dir` on every tier: its logits must be
// finite and equal to the bit on one worker and on several, in different chunks. Restores the active tier.
std::vector<CheckResult> RunSelfcheck(const std::string& model_dir);

}  // namespace tessera

// Where the time of a step goes: every op of a plan belongs to one region, and timing is reported by region.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum Region : uint16_t {
  kRegionInputs,    // embedding, rotary angles, n-gram hashes
  kRegionEngram,    // table rows, projection, gate
  kRegionMix,       // hyper-connection coefficients, collapse, norm
  kRegionQueryKey,  // low-rank q, kv, compressor and indexer inputs
  kRegionQuery,     // wq_b and the indexer's queries
  kRegionCompress,  // head norm and rotation, compressed entries, index keys
  kRegionIndex,     // index scores and selection
  kRegionAttend,    // attention over the window and the selected entries
  kRegionOutput,    // wo_a, wo_b, expand
  kRegionRouter,    // gate, top-k, assignment
  kRegionExperts,   // routed and shared experts
  kRegionCombine,   // sum over experts, expand
  kRegionHead,      // final collapse, norm, logits
  kRegionRecord,    // copies for dumps, only when asked for
  kNumRegions,
};

std::string_view RegionName(Region region);

}  // namespace tessera

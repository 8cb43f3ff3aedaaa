#include "model/regions.h"

namespace tessera {

std::string_view RegionName(Region region) {
  switch (region) {
    case kRegionInputs:
      return "inputs";
    case kRegionEngram:
      return "engram";
    case kRegionMix:
      return "mix";
    case kRegionQueryKey:
      return "query_key";
    case kRegionQuery:
      return "query";
    case kRegionCompress:
      return "compress";
    case kRegionIndex:
      return "index";
    case kRegionAttend:
      return "attend";
    case kRegionOutput:
      return "output";
    case kRegionRouter:
      return "router";
    case kRegionExperts:
      return "experts";
    case kRegionCombine:
      return "combine";
    case kRegionHead:
      return "head";
    case kRegionRecord:
      return "record";
    case kNumRegions:
      break;
  }
  return "?";
}

}  // namespace tessera

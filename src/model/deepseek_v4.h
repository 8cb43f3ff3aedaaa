// DeepSeek-V4's forward pass; T is the activation type.
#pragma once

#include "model/forward.h"

namespace tessera {

template <class T>
ForwardOutputs BuildDeepseekV4(PlanBuilder& builder, const ForwardContext& context);

}  // namespace tessera

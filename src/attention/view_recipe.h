// A view written down so that it can be rebuilt anywhere from the address of its root: the root is read as bytes [rows, row_bytes], the
// view is its columns [offset, offset + bytes), reshaped to [rows, tail...] of one dtype. A recipe is checked when it is recorded, once:
// the rebuilt view has the address, shape and strides of the recorded one, lies inside its root, and shares no byte with a view of another
// name. Caches are made of recipes (KvCache), so that whatever must know a cache's place without holding a pointer has one description of
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace tessera {

// What is recorded and rebuilt. Everything behind the first dimension is contiguous.
struct ShapedView {
  uint8_t* address = nullptr;
  std::vector<int64_t> shape;          // elements
  std::vector<int64_t> strides_bytes;  // parallel to shape
  Dtype dtype = Dtype::kU8;

  bool operator==(const ShapedView&) const = default;
};

struct ViewRecipe {
  std::string name;
  int root_idx = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t offset_bytes = 0;  // of the view's columns in a row
  int64_t bytes = 0;         // of a row that are the view's; offset_bytes + bytes <= row_bytes
  std::vector<int64_t> tail_shape;
  Dtype dtype = Dtype::kU8;

  bool operator==(const ViewRecipe&) const = default;
};

// Two recipes of the same root share a byte. Column slices of the same rows do not when their columns do not.
bool Overlap(const ViewRecipe& a, const ViewRecipe& b);

class ViewRecipes {
 public:
  // A reservation that views lie in. Roots are told apart by address: one that is known already gives the same index.
  int AddRoot(uint8_t* address, int64_t bytes);
  // Writes `view` down. The same name and view again give the recipe that exists. Aborts with the names when the view lies in no root, is
  // not contiguous behind its first dimension, reaches over the end of its row or root, is misaligned for its dtype, or shares bytes with
  // another name's view.
  const ViewRecipe& Record(const std::string& name, const ShapedView& view);
  // The view a recipe stands for. `recipe` need not be one of this object's: other roots give the same view of other memory.
  ShapedView Rebuild(const ViewRecipe& recipe) const;

  const std::vector<ViewRecipe>& recipes() const { return recipes_; }
  int num_roots() const { return static_cast<int>(roots_.size()); }

 private:
  struct Root {
    uint8_t* address = nullptr;
    int64_t bytes = 0;
  };
  ViewRecipe Derive(const std::string& name, const ShapedView& view) const;

  std::vector<Root> roots_;
  std::vector<ViewRecipe> recipes_;
};

}  // namespace tessera

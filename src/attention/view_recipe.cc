#include "attention/view_recipe.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tessera {

bool Overlap(const ViewRecipe& a, const ViewRecipe& b) {
  if (a.root_idx != b.root_idx) return false;
  if (a.row_bytes == b.row_bytes)
    return a.offset_bytes < b.offset_bytes + b.bytes && b.offset_bytes < a.offset_bytes + a.bytes;
  // Rows of different lengths: both lists of byte ranges ascend, so they are walked together.
  for (int64_t row_a = 0, row_b = 0; row_a < a.rows && row_b < b.rows;) {
    const int64_t begin_a = row_a * a.row_bytes + a.offset_bytes, begin_b = row_b * b.row_bytes + b.offset_bytes;
    if (begin_a + a.bytes <= begin_b)
      ++row_a;
    else if (begin_b + b.bytes <= begin_a)
      ++row_b;
    else
      return true;
  }
  return false;
}

int ViewRecipes::AddRoot(uint8_t* address, int64_t bytes) {
  TSR_CHECK(address != nullptr && bytes > 0, "a root of {} bytes", bytes);
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (roots_[i].address == address) {
      TSR_CHECK(roots_[i].bytes == bytes, "root {} has {} bytes and is added again with {}", i, roots_[i].bytes, bytes);
      return static_cast<int>(i);
    }
    TSR_CHECK(address + bytes <= roots_[i].address || roots_[i].address + roots_[i].bytes <= address, "a new root overlaps root {}", i);
  }
  roots_.push_back({address, bytes});
  return static_cast<int>(roots_.size()) - 1;
}

ViewRecipe ViewRecipes::Derive(const std::string& name, const ShapedView& view) const {
  TSR_CHECK(!view.shape.empty() && view.shape.size() == view.strides_bytes.size(), "{}: {} dimensions, {} strides", name,
            view.shape.size(), view.strides_bytes.size());
  TSR_CHECK(std::all_of(view.shape.begin(), view.shape.end(), [](int64_t count) { return count > 0; }), "{}: an empty view", name);
  const auto root = std::find_if(roots_.begin(), roots_.end(), [&](const Root& candidate) {
    return view.address >= candidate.address && view.address < candidate.address + candidate.bytes;
  });
  TSR_CHECK(root != roots_.end(), "{}: its address lies in none of {} roots", name, roots_.size());
  ViewRecipe recipe;
  recipe.name = name;
  recipe.root_idx = static_cast<int>(root - roots_.begin());
  recipe.rows = view.shape.front();
  recipe.row_bytes = view.strides_bytes.front();
  recipe.offset_bytes = view.address - root->address;
  recipe.bytes = DtypeBytes(view.dtype);
  recipe.tail_shape.assign(view.shape.begin() + 1, view.shape.end());
  recipe.dtype = view.dtype;
  for (const int64_t count : recipe.tail_shape) recipe.bytes *= count;
  TSR_CHECK(recipe.offset_bytes + recipe.bytes <= recipe.row_bytes, "{}: columns {} + {} in rows of {} bytes", name, recipe.offset_bytes,
            recipe.bytes, recipe.row_bytes);
  TSR_CHECK(recipe.rows <= root->bytes / recipe.row_bytes, "{}: {} rows of {} bytes in a root of {}", name, recipe.rows, recipe.row_bytes,
            root->bytes);
  TSR_CHECK(recipe.offset_bytes % DtypeBytes(view.dtype) == 0 && recipe.row_bytes % DtypeBytes(view.dtype) == 0,
            "{}: offset {} and rows of {} bytes are misaligned for {}", name, recipe.offset_bytes, recipe.row_bytes, DtypeName(view.dtype));
  return recipe;
}

const ViewRecipe& ViewRecipes::Record(const std::string& name, const ShapedView& view) {
  ViewRecipe recipe = Derive(name, view);
  // What Derive does not look at, the strides inside a row, differs here when they are not those of contiguous elements.
  TSR_CHECK(Rebuild(recipe) == view, "{}: a view that is not contiguous inside its rows cannot be rebuilt", name);
  for (const ViewRecipe& other : recipes_) {
    if (other == recipe) return other;
    TSR_CHECK(other.name != name, "{} is recorded twice, as two views", name);
    TSR_CHECK(!Overlap(recipe, other), "{} overlaps {}", name, other.name);
  }
  return recipes_.emplace_back(std::move(recipe));
}

ShapedView ViewRecipes::Rebuild(const ViewRecipe& recipe) const {
  TSR_CHECK(recipe.root_idx >= 0 && recipe.root_idx < num_roots(), "{}: root {} of {}", recipe.name, recipe.root_idx, num_roots());
  const Root& root = roots_[static_cast<size_t>(recipe.root_idx)];
  TSR_CHECK(recipe.rows <= root.bytes / recipe.row_bytes, "{}: {} rows of {} bytes in a root of {}", recipe.name, recipe.rows,
            recipe.row_bytes, root.bytes);
  ShapedView view;
  view.address = root.address + recipe.offset_bytes;
  view.dtype = recipe.dtype;
  view.shape = recipe.tail_shape;
  view.shape.insert(view.shape.begin(), recipe.rows);
  view.strides_bytes.assign(view.shape.size(), 0);
  int64_t stride = DtypeBytes(recipe.dtype);
  for (size_t i = view.shape.size(); i-- > 1;) {
    view.strides_bytes[i] = stride;
    stride *= view.shape[i];
  }
  view.strides_bytes.front() = recipe.row_bytes;
  return view;
}

}  // namespace tessera

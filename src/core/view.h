// A view never owns: a pointer, a shape [rows, cols] and the distance between rows in elements.
#pragma once

#include <cstdint>

namespace tessera {

template <class T>
struct View {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  T* Row(int64_t row_idx) const { return data + row_idx * stride; }
  View Rows(int64_t first, int64_t count) const { return {data + first * stride, count, cols, stride}; }
  View Columns(int64_t first, int64_t count) const { return {data + first, rows, count, stride}; }
  operator View<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: widening to const is meant
};

template <class T>
View<T> MakeView(T* data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols};
}

}  // namespace tessera

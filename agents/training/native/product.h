// The matrix product, for matrices with few rows.
#pragma once

#include <algorithm>

#include "vector.h"

namespace alma {

// A matrix whose element (row, column) is data[row * row_stride + column * column_stride].
struct Matrix {
  const float* data;
  long row_stride, column_stride;
  Matrix from(long row, long column) const {
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
};

// One tile of the result, kRows x kVectors * kLanes, stays in registers. It starts from the bias, or from c if `add`.
// The function is always inlined: a call would take longer than the arithmetic of a small product.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void tile(Matrix a, const float* b, long b_stride, const float* bias, bool add, float* c, long c_stride, long inner) {
  Vector sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v)
      sums[row][v] = add ? load(c + row * c_stride + v * kLanes) : broadcast(bias ? bias[row] : 0.0f);
  for (long k = 0; k < inner; ++k) {
    Vector right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = load_once(b + k * b_stride + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const Vector left = broadcast(a.data[row * a.row_stride + k * a.column_stride]);
      for (int v = 0; v < kVectors; ++v) sums[row][v] += left * right[v];
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v) store(c + row * c_stride + v * kLanes, sums[row][v]);
}

// A tile of `rows` rows, at most kRows.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void tile_of(long rows, Matrix a, const float* b, long b_stride, const float* bias,
                                           bool add, float* c, long c_stride, long inner) {
  if (rows == kRows)
    tile<kRows, kVectors>(a, b, b_stride, bias, add, c, c_stride, inner);
  else if constexpr (kRows > 1)
    tile_of<kRows - 1, kVectors>(rows, a, b, b_stride, bias, add, c, c_stride, inner);
}

// Tiles of at most kRows rows, and of about equal size: a tile of one row waits for its own sums.
template <int kRows, int kVectors>
void tiles_of_rows(Matrix a, const float* b, long b_stride, const float* bias, bool add, float* c, long c_stride,
                   long rows, long inner) {
  const long parts = (rows + kRows - 1) / kRows;
  for (long part = 0; part < parts; ++part) {
    const long row = rows * part / parts, count = rows * (part + 1) / parts - row;
    tile_of<kRows, kVectors>(count, a.from(row, 0), b, b_stride, bias ? bias + row : bias, add, c + row * c_stride,
                             c_stride, inner);
  }
}

// `multiply` with tiles of at most kRows x kVectors * kLanes.
template <int kRows, int kVectors>
void multiply_in_tiles(Matrix a, const float* b, long b_stride, const float* bias, bool add, float* c, long c_stride,
                       long rows, long inner, long columns) {
  constexpr long kInner = 200;  // rows of a tile of b that fit into a first-level cache
  const long vectors = columns / kLanes, parts = (vectors + kVectors - 1) / kVectors;
  for (long part = 0; part < parts; ++part) {
    const long first = vectors * part / parts, count = vectors * (part + 1) / parts - first;
    for (long k = 0; k < inner; k += kInner) {
      const Matrix left = a.from(0, k);
      const float* right = b + k * b_stride + first * kLanes;
      float* out = c + first * kLanes;
      const long depth = std::min(kInner, inner - k);
      const bool more = add || k > 0;
      if (count == 1) tiles_of_rows<kRows, 1>(left, right, b_stride, bias, more, out, c_stride, rows, depth);
      if (count == 2) tiles_of_rows<kRows, 2>(left, right, b_stride, bias, more, out, c_stride, rows, depth);
      if constexpr (kVectors > 2) {
        if (count == 3) tiles_of_rows<kRows, 3>(left, right, b_stride, bias, more, out, c_stride, rows, depth);
      }
    }
  }
}

// c (rows, columns) = bias (rows) + a (rows, inner) b (inner, columns), or c += a b if `add`. `columns`, `b_stride` and
// `c_stride` are multiples of kLanes; no bias is 0.
inline void multiply(Matrix a, const float* b, long b_stride, const float* bias, float* c, long c_stride, long rows,
                     long inner, long columns, bool add = false) {
  // The largest tile of each form, its part of b and one number of a fill the registers.
  if constexpr (kRegisters == 32)
    multiply_in_tiles<8, 3>(a, b, b_stride, bias, add, c, c_stride, rows, inner, columns);
  else if (rows <= 4 || columns == 3 * kLanes)
    multiply_in_tiles<4, 3>(a, b, b_stride, bias, add, c, c_stride, rows, inner, columns);
  else
    multiply_in_tiles<6, 2>(a, b, b_stride, bias, add, c, c_stride, rows, inner, columns);
}

// out (columns, rows) = in (rows, columns); rows, columns and both strides are multiples of kLanes.
inline void transpose(const float* in, long in_stride, float* out, long out_stride, long rows, long columns) {
  for (long row = 0; row < rows; row += kLanes)
    for (long column = 0; column < columns; column += kLanes) {
      Vector tile[kLanes], zipped[kLanes];
      for (long i = 0; i < kLanes; ++i) tile[i] = load(in + (row + i) * in_stride + column);
      for (long round = 1; round < kLanes; round *= 2) {  // halves the distance of elements that belong together
        for (long i = 0; i < kLanes / 2; ++i) {
          zipped[2 * i] = zip_first(tile[i], tile[i + kLanes / 2]);
          zipped[2 * i + 1] = zip_last(tile[i], tile[i + kLanes / 2]);
        }
        std::memcpy(tile, zipped, sizeof tile);
      }
      for (long i = 0; i < kLanes; ++i) store(out + (column + i) * out_stride + row, tile[i]);
    }
}

}  // namespace alma

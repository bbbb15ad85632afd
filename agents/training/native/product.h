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
// The caller is one with this function: a call would take longer than the arithmetic of a small product.
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

// Tiles that fill the registers.
constexpr int kTileRows = kRegisters == 32 ? 8 : 6, kTileVectors = kRegisters == 32 ? 3 : 2;

template <int kVectors, int kRows = kTileRows>
void tiles_of_rows(Matrix a, const float* b, long b_stride, const float* bias, bool add, float* c, long c_stride,
                   long rows, long inner) {
  long row = 0;
  for (; row + kRows <= rows; row += kRows)
    tile<kRows, kVectors>(a.from(row, 0), b, b_stride, bias ? bias + row : bias, add, c + row * c_stride, c_stride,
                          inner);
  if constexpr (kRows > 1)
    tiles_of_rows<kVectors, kRows / 2>(a.from(row, 0), b, b_stride, bias ? bias + row : bias, add, c + row * c_stride,
                                       c_stride, rows - row, inner);
}

// c (rows, columns) = bias (rows) + a (rows, inner) b (inner, columns). `columns`, `b_stride` and `c_stride` are multiples
// of kLanes; no bias is 0.
inline void multiply(Matrix a, const float* b, long b_stride, const float* bias, float* c, long c_stride, long rows,
                     long inner, long columns) {
  constexpr long kInner = 200;  // rows of a tile of b that fit into a first-level cache
  const long vectors = columns / kLanes, parts = (vectors + kTileVectors - 1) / kTileVectors;
  for (long part = 0; part < parts; ++part) {
    const long first = vectors * part / parts, count = vectors * (part + 1) / parts - first;
    for (long k = 0; k < inner; k += kInner) {
      const Matrix left = a.from(0, k);
      const float* right = b + k * b_stride + first * kLanes;
      float* out = c + first * kLanes;
      const long depth = std::min(kInner, inner - k);
      if (count == 1) tiles_of_rows<1>(left, right, b_stride, bias, k > 0, out, c_stride, rows, depth);
      if (count == 2) tiles_of_rows<2>(left, right, b_stride, bias, k > 0, out, c_stride, rows, depth);
      if constexpr (kTileVectors > 2) {
        if (count == 3) tiles_of_rows<3>(left, right, b_stride, bias, k > 0, out, c_stride, rows, depth);
      }
    }
  }
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

// The gradient of the weights of a 3x3 convolution by Winograd's F(3, 4) along the rows, the transpose of winograd.h:
// dw = G' of the sum over tiles of [(A dy) . (B' x)].
#pragma once

#include "winograd.h"

namespace alma {

// Blocks of images whose columns of tiles are transformed together: enough rows for long sums in registers, in not more
// memory than the second cache. The number of threads changes neither this nor the order of a sum.
inline long correlated_blocks(long inputs, long outputs, long side) {
  constexpr long kRows = 32, kNumbers = 160000;
  const long most = kNumbers / ((inputs + outputs) * (side + 2) * kElements * kLanes);
  return std::max(1L, std::min(most, kRows / side));
}

// Numbers that a thread needs.
inline long correlate_scratch(long inputs, long outputs, long side) {
  return correlated_blocks(inputs, outputs, side) * (inputs + outputs) * (side + 2) * kElements * kLanes;
}

// A dy of four gradients in a row.
inline void transform_gradient(const Vector* dy, Vector* to) {
  const Vector even_near = dy[0] + dy[2] * kNear2, odd_near = (dy[1] + dy[3] * kNear2) * kNear;
  const Vector even_far = dy[0] + dy[2] * kFar2, odd_far = (dy[1] + dy[3] * kFar2) * kFar;
  to[0] = dy[0];
  to[1] = even_near + odd_near;
  to[2] = even_near - odd_near;
  to[3] = even_far + odd_far;
  to[4] = even_far - odd_far;
  to[5] = dy[3];
}

// B' x of a column of tiles of each channel; element e of row r is at to[e * stride + channel * (side + 2) + r].
template <bool kActivated>
void transform_inputs(const Input& x, long block, long column, Vector* to, long channels, long side, long stride) {
  const Vector mask = kActivated ? lanes(x.count, block) : Vector{};
  for (long channel = 0; channel < channels; ++channel, to += side + 2) {
    const float* from = x.maps + (block * channels + channel) * map_size(side) + column * kLanes;
    Vector factor{}, offset{};
    if (kActivated) factor = mask * x.factor[channel], offset = mask * x.offset[channel];
    for (long row = 1; row <= side; ++row) {
      Vector values[kElements], all[kElements];
      read_row<kActivated, kElements>(from + row * row_size(side), column, side, factor, offset, values);
      transform_input(values, all);
      for (int e = 0; e < kElements; ++e) to[e * stride + row] = all[e];
    }
  }
}

// A dy of a column of tiles of each channel, likewise. `dy` begins at the first channel.
inline void transform_gradients(const float* dy, long column, Vector* to, long channels, long side, long stride) {
  for (long channel = 0; channel < channels; ++channel, dy += map_size(side), to += side + 2)
    for (long row = 1; row <= side; ++row) {
      Vector values[kTile], all[kElements];
      for (int i = 0; i < kTile; ++i) values[i] = load(dy + row * row_size(side) + (column + 1 + i) * kLanes);
      transform_gradient(values, all);
      for (int e = 0; e < kElements; ++e) to[e * stride + row] = all[e];
    }
}

// Where one element of a group of blocks is: the row before the first one of each channel, and the distance of blocks.
struct Column {
  const Vector* first;
  long block;
};

// Adds to totals (3 rows of taps, kOut) the products of one input channel and kOut output channels.
template <int kOut>
void add_products(Column x, Column dy, Vector* totals, long outputs, long blocks, long side) {
  Vector sums[3][kOut];
  for (int row = 0; row < 3; ++row)
    for (int out = 0; out < kOut; ++out) sums[row][out] = totals[row * outputs + out];
  for (long block = 0; block < blocks; ++block) {
    const Vector* from = x.first + block * x.block;
    const Vector* delta = dy.first + block * dy.block + 1;
    for (long row = 0; row < side; ++row) {
      const Vector above = load_once(from[row]), here = load_once(from[row + 1]), below = load_once(from[row + 2]);
      for (int out = 0; out < kOut; ++out) {
        const Vector value = load_once(delta[out * (side + 2) + row]);
        sums[0][out] += above * value;
        sums[1][out] += here * value;
        sums[2][out] += below * value;
      }
    }
  }
  for (int row = 0; row < 3; ++row)
    for (int out = 0; out < kOut; ++out) totals[row * outputs + out] = sums[row][out];
}

// As `correlate`, for a side that is a multiple of four, and the output channels `begin` .. `end`. `totals` has room for
// 18 vectors per pair of channels.
inline void winograd_correlate(const Input& x, const float* dy, float* dw, Vector* totals, float* scratch, long blocks,
                               long inputs, long outputs, long side, long begin, long end) {
  constexpr int kMost = kTiles * kChannels;  // output channels at a time
  const long channels = end - begin, height = side + 2;
  const long group = std::min(blocks, correlated_blocks(inputs, outputs, side));
  const long x_block = inputs * height, x_element = group * x_block;
  const long dy_block = channels * height, dy_element = group * dy_block;
  Vector* in = reinterpret_cast<Vector*>(scratch);
  Vector* out = in + kElements * x_element;
  totals += begin * inputs * 3 * kElements;
  std::memset(static_cast<void*>(totals), 0, channels * inputs * 3 * kElements * sizeof(Vector));
  std::memset(static_cast<void*>(in), 0, kElements * x_element * sizeof(Vector));  // the rows outside
  for (long first = 0; first < blocks; first += group)
    for (long column = 0; column < side; column += kTile) {
      const long count = std::min(group, blocks - first);
      for (long i = 0; i < count; ++i) {
        (x.factor ? transform_inputs<true> : transform_inputs<false>)(x, first + i, column, in + i * x_block, inputs, side,
                                                                      x_element);
        transform_gradients(dy + ((first + i) * outputs + begin) * map_size(side), column, out + i * dy_block, channels,
                            side, dy_element);
      }
      for (int e = 0; e < kElements; ++e)
        for (long o = 0; o < channels;) {
          const long size = channels - o >= kMost ? kMost : channels - o >= kChannels ? kChannels : 1;
          const Column delta{out + e * dy_element + o * height, dy_block};
          for (long i = 0; i < inputs; ++i) {
            const Column from{in + e * x_element + i * height, x_block};
            Vector* at = totals + (e * inputs + i) * 3 * channels + o;
            if (size == kMost) add_products<kMost>(from, delta, at, channels, count, side);
            else if (size == kChannels) add_products<kChannels>(from, delta, at, channels, count, side);
            else add_products<1>(from, delta, at, channels, count, side);
          }
          o += size;
        }
    }
  for (long o = 0; o < channels; ++o)
    for (long i = 0; i < inputs; ++i)
      for (long row = 0; row < 3; ++row) {
        const auto element = [&](int e) { return totals[((e * inputs + i) * 3 + row) * channels + o]; };
        const Vector near = (element(1) + element(2)) * kNearNorm, far = (element(3) + element(4)) * kFarNorm;
        float* to = dw + ((begin + o) * inputs + i) * 9 + row * 3;
        to[0] = sum(element(0) * kZeroNorm + near + far);
        to[1] = sum((element(1) - element(2)) * (kNearNorm * kNear) + (element(3) - element(4)) * (kFarNorm * kFar));
        to[2] = sum(near * kNear2 + far * kFar2 + element(5));
      }
}

}  // namespace alma

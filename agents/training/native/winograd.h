// 3x3 convolutions by Winograd's F(4, 3) along the rows: y = A' sum over rows and channels of [(G w) . (B' x)].
//
// A tile is four outputs of a row, from six inputs: 18 multiplications instead of 36. The transforms are additions along
// the row only, few against the products even with four channels. The points 0, 3/4, -3/4, 3/2, -3/2 and infinity make
// the rounding errors 1.4 times those of a plain sum. Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
// arXiv 1509.09308; Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution, 1803.10986.
#pragma once

#include "convolution.h"

namespace alma {

constexpr int kTile = 4, kElements = 6, kHalf = 3;  // outputs of a tile; its products, in two halves
constexpr int kChannels = kRegisters == 32 ? 4 : 2, kTiles = 2;  // at a time: their sums fill the registers
constexpr float kNear = 0.75f, kFar = 1.5f;         // the points
constexpr float kNear2 = kNear * kNear, kFar2 = kFar * kFar;
constexpr float kZeroNorm = 1 / (kNear2 * kFar2);
constexpr float kNearNorm = 1 / (2 * kNear2 * (kNear2 - kFar2)), kFarNorm = 1 / (2 * kFar2 * (kFar2 - kNear2));

inline bool winograd_fits(long side) { return side % kTile == 0; }

// B' d of six numbers in a row.
inline void transform_input(const Vector* d, Vector* to) {
  const Vector even_far = d[4] - d[2] * kFar2, odd_far = (d[3] - d[1] * kFar2) * kNear;
  const Vector even_near = d[4] - d[2] * kNear2, odd_near = (d[3] - d[1] * kNear2) * kFar;
  to[0] = d[4] - d[2] * (kNear2 + kFar2) + d[0] * (kNear2 * kFar2);
  to[1] = even_far + odd_far;
  to[2] = even_far - odd_far;
  to[3] = even_near + odd_near;
  to[4] = even_near - odd_near;
  to[5] = d[5] - d[3] * (kNear2 + kFar2) + d[1] * (kNear2 * kFar2);
}

// G w of all weights: (outputs / kChannels, 2 halves, 3 rows, inputs, 3 elements, kChannels); fewer channels are followed
// by zeros.
inline long transformed_size(long inputs, long outputs) {
  return (outputs + kChannels - 1) / kChannels * kChannels * inputs * 3 * kElements;
}

inline void transform_weights(Weights w, float* to, long outputs, long inputs) {
  for (long first = 0; first < outputs; first += kChannels)
    for (int row = 0; row < 3; ++row)
      for (long in = 0; in < inputs; ++in)
        for (long i = 0; i < kChannels; ++i) {
          float all[kElements] = {};
          if (first + i < outputs) {
            const float* at = w.data + (first + i) * w.output + in * w.input + 3 * row * w.tap;
            const float a = at[0], b = at[w.tap], c = at[2 * w.tap];
            all[0] = a * kZeroNorm;
            all[1] = (a + c * kNear2 + b * kNear) * kNearNorm;
            all[2] = (a + c * kNear2 - b * kNear) * kNearNorm;
            all[3] = (a + c * kFar2 + b * kFar) * kFarNorm;
            all[4] = (a + c * kFar2 - b * kFar) * kFarNorm;
            all[5] = c;
          }
          for (int e = 0; e < kElements; ++e)
            to[((((2 * first / kChannels + e / kHalf) * 3 + row) * inputs + in) * kHalf + e % kHalf) * kChannels + i] = all[e];
        }
}

// kCount numbers in a row of a map, from `column` on; the border is column 0.
template <bool kActivated, int kCount>
[[gnu::always_inline]] inline void read_row(const float* from, long column, long side, Vector factor, Vector offset,
                                            Vector* to) {
  for (int i = 0; i < kCount; ++i) {
    to[i] = load(from + i * kLanes);
    if (kActivated) to[i] = rectified(to[i] * factor + offset);
  }
  if (kActivated && column == 0) to[0] = Vector{};
  if (kActivated && column + kCount == side + 2) to[kCount - 1] = Vector{};
}

// B' x of row `row`, as of the border, of all channels, kCount tiles: (2 halves, channels, 3 elements, kCount) vectors.
template <int kCount, bool kActivated>
void transform_row(const Input& x, long block, long row, long column, float* to, long channels, long side) {
  const Vector mask = kActivated ? lanes(x.count, block) : Vector{};
  for (long channel = 0; channel < channels; ++channel) {
    const float* from = x.maps + (block * channels + channel) * map_size(side) + row * row_size(side) + column * kLanes;
    Vector values[kCount * kTile + 2], all[kElements], factor{}, offset{};
    if (kActivated) factor = mask * x.factor[channel], offset = mask * x.offset[channel];
    read_row<kActivated, kCount * kTile + 2>(from, column, side, factor, offset, values);
    for (int tile = 0; tile < kCount; ++tile) {
      transform_input(values + tile * kTile, all);
      for (int e = 0; e < kElements; ++e)
        store(to + (((e / kHalf * channels + channel) * kHalf + e % kHalf) * kCount + tile) * kLanes, all[e]);
    }
  }
}

// One half of the products of kChannels output channels, from rows first .. last of the three transformed ones; first < last.
template <int kCount>
[[gnu::always_inline]] inline void multiply_half(const float* const* rows, long half, long first, long last,
                                                 const float* weights, long inputs,
                                                 Vector (&total)[kChannels][kHalf][kCount]) {
  for (auto& by_element : total)
    for (auto& by_tile : by_element)
      for (Vector& value : by_tile) value = Vector{};
  weights += (3 * half + first) * inputs * kHalf * kChannels;
  do {  // not `for`: the compiler keeps the sums in registers if it sees that each loop has a turn
    const float* from = rows[first] + half * inputs * kHalf * kCount * kLanes;
    long in = 0;
    do {
      for (int e = 0; e < kHalf; ++e) {
        Vector values[kCount];
        for (int tile = 0; tile < kCount; ++tile) values[tile] = load_once(from + (e * kCount + tile) * kLanes);
        for (int out = 0; out < kChannels; ++out) {
          const Vector weight = broadcast(weights[e * kChannels + out]);
          for (int tile = 0; tile < kCount; ++tile) total[out][e][tile] += values[tile] * weight;
        }
      }
      from += kHalf * kCount * kLanes;
      weights += kHalf * kChannels;
    } while (++in < inputs);
  } while (++first < last);
}

// kCount tiles of a row of `outputs` (at most kChannels) channels, from rows first .. last of the three transformed ones.
template <int kCount>
void multiply_row(const float* const* rows, long first, long last, const float* weights, float* y, long inputs,
                  long outputs, long map, Sums sums) {
  Vector left[kChannels][kHalf][kCount], right[kChannels][kHalf][kCount];
  multiply_half<kCount>(rows, 0, first, last, weights, inputs, left);
  for (int out = 0; out < kChannels; ++out)
    for (int tile = 0; tile < kCount; ++tile) {
      const Vector plus = left[out][1][tile], minus = left[out][2][tile];
      left[out][0][tile] += plus + minus;
      left[out][1][tile] = plus + minus;
      left[out][2][tile] = (plus - minus) * kNear;
    }
  multiply_half<kCount>(rows, 1, first, last, weights, inputs, right);
  for (int out = 0; out < kChannels && out < outputs; ++out) {
    Vector values{}, squares{};
    for (int tile = 0; tile < kCount; ++tile) {
      const Vector even_near = left[out][1][tile], odd_near = left[out][2][tile];
      const Vector even = right[out][0][tile] + right[out][1][tile];
      const Vector odd = (right[out][0][tile] - right[out][1][tile]) * kFar;
      const Vector all[kTile] = {left[out][0][tile] + even, odd_near + odd, even_near * kNear2 + even * kFar2,
                                 odd_near * kNear2 + odd * kFar2 + right[out][2][tile]};
      for (int i = 0; i < kTile; ++i) {
        store(y + out * map + (tile * kTile + i) * kLanes, all[i]);
        values += all[i];
        squares += all[i] * all[i];
      }
    }
    if (sums.values) {
      sums.values[out] += values;
      sums.squares[out] += squares;
    }
  }
}

// Numbers that a thread needs: three transformed rows.
inline long winograd_scratch(long channels) { return 3 * channels * kElements * kTiles * kLanes; }

// A strip of kCount tiles, from the top of the map to its bottom.
template <int kCount, bool kActivated>
void winograd_strip(const Input& x, const float* weights, float* y, long inputs, long outputs, long side, long block,
                    long column, Sums sums, float* scratch) {
  const long width = row_size(side), map = map_size(side), size = inputs * kElements * kCount * kLanes;
  const auto slot = [&](long row) { return scratch + row % 3 * size; };  // rows as of the border: 1 .. side
  for (long row = 0; row < side; ++row) {
    for (long next = row == 0 ? 1 : row + 2; next <= std::min(row + 2, side); ++next)
      transform_row<kCount, kActivated>(x, block, next, column, slot(next), inputs, side);
    const float* rows[3] = {slot(row), slot(row + 1), slot(row + 2)};
    const long first = row == 0 ? 1 : 0, last = row + 1 == side ? 2 : 3;  // the other rows are zero
    for (long out = 0; out < outputs; out += kChannels)
      multiply_row<kCount>(rows, first, last, weights + out * inputs * 3 * kElements,
                           y + (block * outputs + out) * map + (row + 1) * width + (column + 1) * kLanes, inputs,
                           std::min<long>(outputs - out, kChannels), map,
                           sums.values ? Sums{sums.values + out, sums.squares + out} : sums);
  }
}

// y = the convolution of x for one block, with weights from `transform_weights`. The side is a multiple of four; the
// border of y is not written.
inline void winograd_convolve(const Input& x, const float* weights, float* y, long inputs, long outputs, long side,
                              long block, Sums sums, float* scratch) {
  const bool whole = side % (kTiles * kTile) == 0;
  const auto strip = x.factor ? (whole ? winograd_strip<kTiles, true> : winograd_strip<1, true>)
                              : (whole ? winograd_strip<kTiles, false> : winograd_strip<1, false>);
  for (long column = 0; column < side; column += (whole ? kTiles : 1) * kTile)
    strip(x, weights, y, inputs, outputs, side, block, column, sums, scratch);
}

}  // namespace alma

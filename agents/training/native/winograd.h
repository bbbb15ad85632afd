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

// G w of all weights: (outputs / 4, 2 halves, 3 rows, inputs, 3 elements, 4 outputs); fewer than four outputs are
// followed by zeros.
inline long transformed_size(long inputs, long outputs) { return (outputs + 3) / 4 * 4 * inputs * 3 * kElements; }

inline void transform_weights(Weights w, float* to, long outputs, long inputs) {
  for (long first = 0; first < outputs; first += 4)
    for (int row = 0; row < 3; ++row)
      for (long in = 0; in < inputs; ++in)
        for (long i = 0; i < 4; ++i) {
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
            to[(((first / 2 + e / kHalf) * 3 + row) * inputs + in) * kHalf * 4 + e % kHalf * 4 + i] = all[e];
        }
}

// Six or more numbers in a row of a map, from `column` of the border on, of one channel of the input.
template <bool kActivated, int kCount>
[[gnu::always_inline]] inline void read_row(const float* from, long column, long side, Vector factor, Vector offset, Vector* to) {
  for (int i = 0; i < kCount; ++i) {
    to[i] = load(from + i * kLanes);
    if (kActivated) to[i] = rectified(to[i] * factor + offset);
  }
  if (kActivated && column == 0) to[0] = Vector{};
  if (kActivated && column + kCount == side + 2) to[kCount - 1] = Vector{};
}

// B' x of row `row`, as of the border, of all channels, kTiles tiles: (2 halves, channels, 3 elements, kTiles) vectors.
template <int kTiles, bool kActivated>
void transform_row(const Input& x, long block, long row, long column, float* to, long channels, long side) {
  const Vector mask = kActivated ? lanes(x.count, block) : Vector{};
  for (long channel = 0; channel < channels; ++channel) {
    const float* from = x.maps + (block * channels + channel) * map_size(side) + row * row_size(side) + column * kLanes;
    Vector values[kTiles * kTile + 2], all[kElements], factor{}, offset{};
    if (kActivated) factor = mask * x.factor[channel], offset = mask * x.offset[channel];
    read_row<kActivated, kTiles * kTile + 2>(from, column, side, factor, offset, values);
    for (int tile = 0; tile < kTiles; ++tile) {
      transform_input(values + tile * kTile, all);
      for (int e = 0; e < kElements; ++e)
        store(to + (((e / kHalf * channels + channel) * kHalf + e % kHalf) * kTiles + tile) * kLanes, all[e]);
    }
  }
}

// One half of the products of four output channels, from rows first .. last of the three transformed ones; first < last.
template <int kTiles>
[[gnu::always_inline]] inline void multiply_half(const float* const* rows, long half, long first, long last,
                                                 const float* weights, long inputs, Vector (&total)[4][kHalf][kTiles]) {
  for (auto& by_element : total)
    for (auto& by_tile : by_element)
      for (Vector& value : by_tile) value = Vector{};
  weights += (3 * half + first) * inputs * kHalf * 4;
  do {  // not `for`: the compiler keeps the sums in registers if it sees that each loop has a turn
    const float* from = rows[first] + half * inputs * kHalf * kTiles * kLanes;
    long in = 0;
    do {
      for (int e = 0; e < kHalf; ++e) {
        Vector values[kTiles];
        for (int tile = 0; tile < kTiles; ++tile) values[tile] = load_once(from + (e * kTiles + tile) * kLanes);
        for (int out = 0; out < 4; ++out) {
          const Vector weight = broadcast(weights[e * 4 + out]);
          for (int tile = 0; tile < kTiles; ++tile) total[out][e][tile] += values[tile] * weight;
        }
      }
      from += kHalf * kTiles * kLanes;
      weights += kHalf * 4;
    } while (++in < inputs);
  } while (++first < last);
}

// kTiles tiles of a row of `outputs` (at most four) channels, from rows first .. last of the three transformed ones.
template <int kTiles>
void multiply_row(const float* const* rows, long first, long last, const float* weights, float* y, long inputs,
                  long outputs, long map, Sums sums) {
  Vector left[4][kHalf][kTiles], right[4][kHalf][kTiles];
  multiply_half<kTiles>(rows, 0, first, last, weights, inputs, left);
  for (int out = 0; out < 4; ++out)
    for (int tile = 0; tile < kTiles; ++tile) {
      const Vector plus = left[out][1][tile], minus = left[out][2][tile];
      left[out][0][tile] += plus + minus;
      left[out][1][tile] = plus + minus;
      left[out][2][tile] = (plus - minus) * kNear;
    }
  multiply_half<kTiles>(rows, 1, first, last, weights, inputs, right);
  for (int out = 0; out < 4 && out < outputs; ++out) {
    Vector values{}, squares{};
    for (int tile = 0; tile < kTiles; ++tile) {
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
inline long winograd_scratch(long channels) { return 3 * channels * kElements * 2 * kLanes; }

// A strip of kTiles tiles, from the top of the map to its bottom.
template <int kTiles, bool kActivated>
void winograd_strip(const Input& x, const float* weights, float* y, long inputs, long outputs, long side, long block,
                    long column, Sums sums, float* scratch) {
  const long width = row_size(side), map = map_size(side), size = inputs * kElements * kTiles * kLanes;
  const auto slot = [&](long row) { return scratch + row % 3 * size; };  // rows as of the border: 1 .. side
  for (long row = 0; row < side; ++row) {
    for (long next = row == 0 ? 1 : row + 2; next <= std::min(row + 2, side); ++next)
      transform_row<kTiles, kActivated>(x, block, next, column, slot(next), inputs, side);
    const float* rows[3] = {slot(row), slot(row + 1), slot(row + 2)};
    const long first = row == 0 ? 1 : 0, last = row + 1 == side ? 2 : 3;  // the other rows are zero
    for (long out = 0; out < outputs; out += 4)
      multiply_row<kTiles>(rows, first, last, weights + out * inputs * 3 * kElements,
                           y + (block * outputs + out) * map + (row + 1) * width + (column + 1) * kLanes, inputs,
                           std::min(outputs - out, 4L), map,
                           sums.values ? Sums{sums.values + out, sums.squares + out} : sums);
  }
}

// y = the convolution of x for one block, with weights from `transform_weights`. The side is a multiple of four; the
// border of y is not written.
inline void winograd_convolve(const Input& x, const float* weights, float* y, long inputs, long outputs, long side,
                              long block, Sums sums, float* scratch) {
  const bool two = side % (2 * kTile) == 0;
  const auto strip = x.factor ? (two ? winograd_strip<2, true> : winograd_strip<1, true>)
                              : (two ? winograd_strip<2, false> : winograd_strip<1, false>);
  for (long column = 0; column < side; column += two ? 2 * kTile : kTile)
    strip(x, weights, y, inputs, outputs, side, block, column, sums, scratch);
}

}  // namespace alma

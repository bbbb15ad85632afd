// 3x3 convolutions by Winograd's F(2x2, 3x3): y = A' [(G w G') . (B' x B)] A for each tile of 2x2 outputs.
//
// A tile takes 16 multiplications instead of 36. The transforms are additions, which pay from sixteen channels on.
// Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308, section 4.1.
#pragma once

#include "convolution.h"
#include "product.h"

namespace alma {

constexpr long kTiles = 16;                      // tiles that are transformed together: they stay in the second cache
constexpr long kTileStride = (kTiles + 1) * kLanes;  // one more than a power of two: other cache sets

// Numbers of 16 transformed elements, of `rows` channels each: element e of channel c at (e, c, tile, lane).
inline long element_stride(long rows) { return rows * kTileStride + kLanes; }

// Numbers that a thread needs between the transforms.
inline long winograd_scratch(long inputs, long outputs) { return 16 * (element_stride(inputs) + element_stride(outputs)); }

// (B' d B) of 4 numbers in a row or in a column.
inline void transform_input(Vector& a, Vector& b, Vector& c, Vector& d) {
  const Vector first = a - c, second = b + c, third = c - b, fourth = b - d;
  a = first, b = second, c = third, d = fourth;
}

// B' d B of the tiles `first` .. `first + count` of each channel.
inline void transform_inputs(const float* x, float* to, long channels, long side, long first, long count) {
  const long width = row_size(side), across = side / 2;
  for (long channel = 0; channel < channels; ++channel)
    for (long tile = 0; tile < count; ++tile) {
      const long row = (first + tile) / across, column = (first + tile) % across;
      const float* from = x + channel * map_size(side) + 2 * row * width + 2 * column * kLanes;
      Vector d[4][4];
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) d[i][j] = load(from + i * width + j * kLanes);
      for (int j = 0; j < 4; ++j) transform_input(d[0][j], d[1][j], d[2][j], d[3][j]);
      for (int i = 0; i < 4; ++i) transform_input(d[i][0], d[i][1], d[i][2], d[i][3]);
      float* at = to + channel * kTileStride + tile * kLanes;
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) store(at + (4 * i + j) * element_stride(channels), d[i][j]);
    }
}

// G w G' of all weights: (16, outputs, inputs).
inline void transform_weights(Weights w, float* to, long outputs, long inputs) {
  const auto spread = [](float a, float b, float c, float* out, long stride) {
    out[0] = a;
    out[stride] = 0.5f * (a + b + c);
    out[2 * stride] = 0.5f * (a - b + c);
    out[3 * stride] = c;
  };
  for (long out = 0; out < outputs; ++out)
    for (long in = 0; in < inputs; ++in) {
      const float* at = w.data + out * w.output + in * w.input;
      float columns[4][3], all[4][4];
      for (int j = 0; j < 3; ++j) spread(at[j * w.tap], at[(3 + j) * w.tap], at[(6 + j) * w.tap], &columns[0][j], 3);
      for (int i = 0; i < 4; ++i) spread(columns[i][0], columns[i][1], columns[i][2], all[i], 1);
      for (int e = 0; e < 16; ++e) to[(e * outputs + out) * inputs + in] = all[e / 4][e % 4];
    }
}

// As `convolve`, with weights from `transform_weights`. The side is even.
inline void winograd_convolve(const float* x, const float* weights, float* y, long inputs, long outputs, long side,
                              Sums sums, float* scratch) {
  const long tiles = side * side / 4, across = side / 2, width = row_size(side);
  float* in = scratch;
  float* out = scratch + 16 * element_stride(inputs);
  for (long first = 0; first < tiles; first += kTiles) {
    const long count = std::min(kTiles, tiles - first);
    transform_inputs(x, in, inputs, side, first, count);
    for (long e = 0; e < 16; ++e)
      multiply({weights + e * outputs * inputs, inputs, 1}, in + e * element_stride(inputs), kTileStride, nullptr,
               out + e * element_stride(outputs), kTileStride, outputs, inputs, count * kLanes);
    for (long channel = 0; channel < outputs; ++channel) {
      Vector total{}, squares{};
      for (long tile = 0; tile < count; ++tile) {
        const float* from = out + channel * kTileStride + tile * kLanes;
        Vector rows[2][4];
        for (int j = 0; j < 4; ++j) {
          Vector m[4];
          for (int i = 0; i < 4; ++i) m[i] = load(from + (4 * i + j) * element_stride(outputs));
          rows[0][j] = m[0] + m[1] + m[2];
          rows[1][j] = m[1] - m[2] - m[3];
        }
        const long row = (first + tile) / across, column = (first + tile) % across;
        float* to = y + channel * map_size(side) + (2 * row + 1) * width + (2 * column + 1) * kLanes;
        for (int i = 0; i < 2; ++i) {
          const Vector left = rows[i][0] + rows[i][1] + rows[i][2], right = rows[i][1] - rows[i][2] - rows[i][3];
          store(to + i * width, left);
          store(to + i * width + kLanes, right);
          total += left + right;
          squares += left * left + right * right;
        }
      }
      if (sums.values) {
        sums.values[channel] += total;
        sums.squares[channel] += squares;
      }
    }
  }
}

// A d A' of the gradients of the tiles `first` .. `first + count` of each output channel.
inline void transform_gradients(const float* dy, float* to, long channels, long side, long first, long count) {
  const long width = row_size(side), across = side / 2;
  for (long channel = 0; channel < channels; ++channel)
    for (long tile = 0; tile < count; ++tile) {
      const long row = (first + tile) / across, column = (first + tile) % across;
      const float* from = dy + channel * map_size(side) + (2 * row + 1) * width + (2 * column + 1) * kLanes;
      float* at = to + channel * kTileStride + tile * kLanes;
      Vector d[4][2];
      for (int j = 0; j < 2; ++j) {
        const Vector upper = load(from + j * kLanes), lower = load(from + width + j * kLanes);
        d[0][j] = upper, d[1][j] = upper + lower, d[2][j] = upper - lower, d[3][j] = -lower;
      }
      for (int i = 0; i < 4; ++i) {
        const Vector all[4] = {d[i][0], d[i][0] + d[i][1], d[i][0] - d[i][1], -d[i][1]};
        for (int j = 0; j < 4; ++j) store(at + (4 * i + j) * element_stride(channels), all[j]);
      }
    }
}

// totals (kOut, kIn) += the sums over tiles of the products of kOut gradients and kIn inputs.
template <int kOut, int kIn>
void add_products(const float* gradients, const float* inputs, Vector* totals, long total_stride, long count) {
  Vector sums[kOut][kIn];
  for (int out = 0; out < kOut; ++out)
    for (int in = 0; in < kIn; ++in) sums[out][in] = totals[out * total_stride + in];
  for (long tile = 0; tile < count; ++tile) {
    Vector values[kIn];
    for (int in = 0; in < kIn; ++in) values[in] = load(inputs + in * kTileStride + tile * kLanes);
    for (int out = 0; out < kOut; ++out) {
      const Vector gradient = load(gradients + out * kTileStride + tile * kLanes);
      for (int in = 0; in < kIn; ++in) sums[out][in] += gradient * values[in];
    }
  }
  for (int out = 0; out < kOut; ++out)
    for (int in = 0; in < kIn; ++in) totals[out * total_stride + in] = sums[out][in];
}

// As `correlate`. `totals` has room for outputs * 16 vectors per input channel.
inline void winograd_correlate(const float* x, const float* dy, float* dw, Vector* totals, float* scratch, long blocks,
                               long inputs, long outputs, long side, long begin, long end) {
  const long tiles = side * side / 4, channels = end - begin, map = map_size(side);
  float* in = scratch;
  float* out = scratch + 16 * element_stride(inputs);
  totals += begin * outputs * 16;
  std::memset(static_cast<void*>(totals), 0, channels * outputs * 16 * sizeof(Vector));
  for (long block = 0; block < blocks; ++block)
    for (long first = 0; first < tiles; first += kTiles) {
      const long count = std::min(kTiles, tiles - first);
      transform_gradients(dy + block * outputs * map, out, outputs, side, first, count);
      transform_inputs(x + (block * inputs + begin) * map, in, channels, side, first, count);
      for (long e = 0; e < 16; ++e)
        for (long o = 0; o < outputs; o += outputs - o >= 4 ? 4 : 1)
          for (long i = 0; i < channels; i += channels - i >= 4 ? 4 : 1) {
            const float* gradients = out + e * element_stride(outputs) + o * kTileStride;
            const float* values = in + e * element_stride(channels) + i * kTileStride;
            Vector* at = totals + (e * outputs + o) * channels + i;
            if (outputs - o >= 4 && channels - i >= 4) add_products<4, 4>(gradients, values, at, channels, count);
            else if (outputs - o >= 4) add_products<4, 1>(gradients, values, at, channels, count);
            else if (channels - i >= 4) add_products<1, 4>(gradients, values, at, channels, count);
            else add_products<1, 1>(gradients, values, at, channels, count);
          }
    }
  const auto gather = [](const float* u, long stride, float* to, long to_stride) {  // G' u
    to[0] = u[0] + 0.5f * (u[stride] + u[2 * stride]);
    to[to_stride] = 0.5f * (u[stride] - u[2 * stride]);
    to[2 * to_stride] = 0.5f * (u[stride] + u[2 * stride]) + u[3 * stride];
  };
  for (long o = 0; o < outputs; ++o)
    for (long i = 0; i < channels; ++i) {
      float u[16], rows[3][4];
      for (long e = 0; e < 16; ++e) u[e] = sum(totals[(e * outputs + o) * channels + i]);
      for (int j = 0; j < 4; ++j) gather(u + j, 4, &rows[0][j], 4);
      for (int tap = 0; tap < 3; ++tap) gather(rows[tap], 1, dw + (o * inputs + begin + i) * 9 + 3 * tap, 1);
    }
}

}  // namespace alma

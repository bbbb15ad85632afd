// 3x3 convolutions of kLanes images side by side, for maps that are too small for winograd.h.
//
// A map is (channels, side + 2, side + 2, kLanes): an image in each lane of a vector, with a border of zeros. So a
// network of four channels fills the vectors as well as one of forty.
#pragma once

#include <algorithm>

#include "vector.h"

namespace alma {

inline long row_size(long side) { return (side + 2) * kLanes; }
inline long map_size(long side) { return (side + 2) * row_size(side); }

// Where the weight of output channel o, input channel i and tap t = 3 row + column is: data[o * output + i * input +
// t * tap].
struct Weights {
  const float* data;
  long output, input, tap;
};

// The sums of the outputs of each channel, and of their squares; no pointers: they are not needed.
struct Sums {
  Vector *values, *squares;
};

// 1 in the lanes of a block that hold one of `count` images, 0 in the others.
inline Vector lanes(long count, long block) {
  Vector mask{};
  for (long lane = 0; lane < kLanes && block * kLanes + lane < count; ++lane) mask[lane] = 1.0f;
  return mask;
}

// The maps of `count` images that a convolution reads: as they are, or, with factors, ReLU(factor * value + offset) of
// them, which is BatchNorm and ReLU of the layer below. This is computed where it is read: memory is slower.
struct Input {
  const float* maps;
  const float *factor, *offset;  // of each channel
  long count;
};

// One row of kOut output channels, kColumns columns at a time: the sums stay in registers.
template <int kOut, int kColumns>
void convolve_row(const float* x, Weights w, float* y, long inputs, long side, long row, Sums sums) {
  const long width = row_size(side), map = map_size(side);
  for (long column = 0; column < side; column += kColumns) {
    Vector total[kOut][kColumns] = {};
    const float* weights = w.data;
    for (long in = 0; in < inputs; ++in, weights += w.input) {
      const float* from = x + in * map + row * width + column * kLanes;
      for (int tap_row = 0; tap_row < 3; ++tap_row, from += width) {
        Vector values[kColumns + 2];
        for (int i = 0; i < kColumns + 2; ++i) values[i] = load(from + i * kLanes);
        for (int tap = 0; tap < 3; ++tap)
          for (int out = 0; out < kOut; ++out) {
            const Vector weight = broadcast(weights[out * w.output + (3 * tap_row + tap) * w.tap]);
            for (int i = 0; i < kColumns; ++i) total[out][i] += values[i + tap] * weight;
          }
      }
    }
    for (int out = 0; out < kOut; ++out)
      for (int i = 0; i < kColumns; ++i) {
        store(y + out * map + (row + 1) * width + (column + 1 + i) * kLanes, total[out][i]);
        if (sums.values) {
          sums.values[out] += total[out][i];
          sums.squares[out] += total[out][i] * total[out][i];
        }
      }
  }
}

template <int kOut>
void convolve_rows(const float* x, Weights w, float* y, long inputs, long side, long row, Sums sums) {
  if (side % 2 == 0)
    convolve_row<kOut, 2>(x, w, y, inputs, side, row, sums);
  else
    convolve_row<kOut, 1>(x, w, y, inputs, side, row, sums);
}

// y (outputs maps) = the convolution of x (inputs maps), for a block of kLanes images. The border of y is not written.
inline void convolve(const float* x, Weights w, float* y, long inputs, long outputs, long side, Sums sums) {
  for (long row = 0; row < side; ++row)
    for (long out = 0; out < outputs; out += 4) {
      const Weights part{w.data + out * w.output, w.output, w.input, w.tap};
      const Sums here = sums.values ? Sums{sums.values + out, sums.squares + out} : sums;
      float* to = y + out * map_size(side);
      switch (std::min(outputs - out, 4L)) {
        case 1: convolve_rows<1>(x, part, to, inputs, side, row, here); break;
        case 2: convolve_rows<2>(x, part, to, inputs, side, row, here); break;
        case 3: convolve_rows<3>(x, part, to, inputs, side, row, here); break;
        default: convolve_rows<4>(x, part, to, inputs, side, row, here);
      }
    }
}

// Adds to totals (kOut, 3) the products of one row of taps: rows first..last of one input map and of kOut output maps.
template <int kOut>
void correlate_rows(const float* x, const float* dy, Vector* totals, long side, long first, long last, long tap_row) {
  const long width = row_size(side), map = map_size(side);
  Vector sums[kOut][3];
  for (int out = 0; out < kOut; ++out)
    for (int tap = 0; tap < 3; ++tap) sums[out][tap] = totals[3 * out + tap];
  for (long row = first; row < last; ++row) {
    const float* from = x + (row + tap_row) * width;
    const float* delta = dy + (row + 1) * width + kLanes;
    Vector left = load(from), middle = load(from + kLanes);
    for (long column = 0; column < side; ++column, delta += kLanes) {
      const Vector right = load(from + (column + 2) * kLanes);
      for (int out = 0; out < kOut; ++out) {
        const Vector value = load(delta + out * map);
        sums[out][0] += left * value;
        sums[out][1] += middle * value;
        sums[out][2] += right * value;
      }
      left = middle;
      middle = right;
    }
  }
  for (int out = 0; out < kOut; ++out)
    for (int tap = 0; tap < 3; ++tap) totals[3 * out + tap] = sums[out][tap];
}

// The gradient of the weights of the input channels `begin` .. `end`: dw (outputs, inputs, 9), from the maps of all
// blocks of images. `totals` has room for outputs * 9 vectors per input channel.
inline void correlate(const float* x, const float* dy, float* dw, Vector* totals, long blocks, long inputs, long outputs,
                      long side, long begin, long end) {
  const long map = map_size(side), rows = std::min(side, std::max(1L, 64 / side));
  std::memset(static_cast<void*>(totals + begin * outputs * 9), 0, (end - begin) * outputs * 9 * sizeof(Vector));
  for (long block = 0; block < blocks; ++block)
    for (long row = 0; row < side; row += rows)
      for (long out = 0; out < outputs;) {
        const long count = outputs - out >= 8 ? 8 : outputs - out >= 4 ? 4 : 1;
        const float* delta = dy + (block * outputs + out) * map;
        const long last = std::min(side, row + rows);
        for (long in = begin; in < end; ++in)
          for (long tap_row = 0; tap_row < 3; ++tap_row) {
            Vector* at = totals + ((in * 3 + tap_row) * outputs + out) * 3;
            const float* from = x + (block * inputs + in) * map;
            if (count == 8) correlate_rows<8>(from, delta, at, side, row, last, tap_row);
            if (count == 4) correlate_rows<4>(from, delta, at, side, row, last, tap_row);
            if (count == 1) correlate_rows<1>(from, delta, at, side, row, last, tap_row);
          }
        out += count;
      }
  for (long in = begin; in < end; ++in)
    for (long out = 0; out < outputs; ++out)
      for (long tap = 0; tap < 9; ++tap)
        dw[(out * inputs + in) * 9 + tap] = sum(totals[((in * 3 + tap / 3) * outputs + out) * 3 + tap % 3]);
}

}  // namespace alma

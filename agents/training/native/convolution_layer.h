// A 3x3 convolution with BatchNorm and ReLU, and a pooling or none: what comes after the convolution.
//
// BatchNorm removes the bias of a convolution. So no bias is added in training; it shifts the running mean only. Lanes
// that hold no image are zero in every map, and change no sum.
#pragma once

#include <cmath>
#include <vector>

#include "workspace.h"

namespace alma {

struct ConvolutionLayer {
  long in, out, side;
  bool pool, has_bias;
  long weight, bias, scale, shift;      // in the parameters
  long running_mean, running_variance;  // in the buffers
  std::vector<float> mean, inverse;     // of the outputs of the convolution; inverse: of the standard deviation
  std::vector<float> factor, offset;    // BatchNorm is factor * value + offset
  // Before BatchNorm; after ReLU and pooling; the gradient of the input, if it does not fit in the place of `convolved`.
  Buffer convolved, output, input_gradient;

  // parameters, buffers: the numbers of those before this layer, then also of its own.
  ConvolutionLayer(long inputs, long outputs, long its_side, bool with_pool, bool with_bias, long& parameters,
                   long& buffers)
      : in(inputs), out(outputs), side(its_side), pool(with_pool), has_bias(with_bias) {
    for (std::vector<float>* values : {&mean, &inverse, &factor, &offset}) values->resize(out);
    weight = parameters;
    bias = parameters += 9 * in * out;
    scale = parameters += has_bias ? out : 0;
    shift = parameters += out;
    parameters += out;
    running_mean = buffers;
    running_variance = buffers += out;
    buffers += out;
  }

  float* before(long block) const { return convolved + block * out * map_size(side); }
  // Whether the work on the maps of so many images is worth several threads: some ten microseconds of it.
  bool worth_threads(long count) const { return count * side * side * in * out > 200000; }
  // Whether ReLU is a pass of its own: Winograd's algorithm computes it where it reads `convolved`.
  bool has_output() const { return pool || !winograd_fits(side); }
  // What a convolution above reads.
  Input result(long count) const {
    if (has_output()) return {output, nullptr, nullptr, count};
    return {convolved, factor.data(), offset.data(), count};
  }
  long output_side() const { return pool ? side / 2 : side; }

  void reserve(long blocks) {
    if (convolved.size() >= blocks * out * map_size(side)) return;
    convolved.resize(blocks * out * map_size(side));
    if (in != out) input_gradient.resize(blocks * in * map_size(side));
    if (has_output()) output.resize(blocks * out * map_size(output_side()));
  }
};

// The mean and the inverse standard deviation of each channel: of the batch, or, for an answer, the running ones.
inline void statistics(const Workspace& shared, ConvolutionLayer& layer, long count, bool training) {
  constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;  // the defaults of PyTorch
  const long blocks = padded(count) / kLanes;
  const double values = static_cast<double>(count) * layer.side * layer.side;
  for (long channel = 0; channel < layer.out; ++channel) {
    const float bias = layer.has_bias ? shared.parameters[layer.bias + channel] : 0.0f;
    float& running_mean = shared.buffers[layer.running_mean + channel];
    float& running_variance = shared.buffers[layer.running_variance + channel];
    const auto set = [&](float mean, float variance) {
      layer.mean[channel] = mean;
      layer.inverse[channel] = 1.0f / std::sqrt(variance + kEpsilon);
      layer.factor[channel] = layer.inverse[channel] * shared.parameters[layer.scale + channel];
      layer.offset[channel] = shared.parameters[layer.shift + channel] - mean * layer.factor[channel];
    };
    if (!training) {
      set(running_mean - bias, running_variance);
      continue;
    }
    const double mean = shared.reduced(blocks, layer.out, channel, &Sums::values) / values;
    const double squares = shared.reduced(blocks, layer.out, channel, &Sums::squares) / values;
    const float variance = static_cast<float>(std::max(squares - mean * mean, 0.0));
    set(static_cast<float>(mean), variance);
    running_mean += kMomentum * (static_cast<float>(mean) + bias - running_mean);
    running_variance += kMomentum * (variance * static_cast<float>(values / (values - 1)) - running_variance);
  }
}

// output = pooling(ReLU(BatchNorm(convolved))) of one block.
inline void activate(ConvolutionLayer& layer, long block, Vector mask) {
  const long width = row_size(layer.side), out_side = layer.output_side(), out_width = row_size(out_side);
  for (long channel = 0; channel < layer.out; ++channel) {
    const Vector factor = broadcast(layer.factor[channel]), offset = broadcast(layer.offset[channel]);
    const float* from = layer.before(block) + channel * map_size(layer.side) + width + kLanes;
    float* to = layer.output + (block * layer.out + channel) * map_size(out_side) + out_width + kLanes;
    const auto value = [&](const float* at) { return load(at) * factor + offset; };
    for (long row = 0; row < out_side; ++row, to += out_width)
      for (long i = 0; i < out_side * kLanes; i += kLanes) {
        const float* at = from + (layer.pool ? 2 * row : row) * width + (layer.pool ? 2 * i : i);
        const Vector highest = layer.pool ? largest(largest(value(at), value(at + kLanes)),
                                                    largest(value(at + width), value(at + width + kLanes)))
                                          : value(at);
        store(to + i, rectified(highest) * mask);
      }
  }
}

// The gradient `to` before ReLU and pooling, given that of the output, with its sums, and those of its products with the
// centred outputs of the convolution. Without a pooling, both may be the same maps.
inline void activate_backward(const Workspace& shared, const ConvolutionLayer& layer, long block, const float* gradient,
                              float* to) {
  const long width = row_size(layer.side), out_side = layer.output_side(), out_width = row_size(out_side);
  const Sums sums = shared.sums_of(block, layer.out);
  for (long channel = 0; channel < layer.out; ++channel) {
    Vector total{}, products{};
    const Vector factor = broadcast(layer.factor[channel]), offset = broadcast(layer.offset[channel]);
    const Vector mean = broadcast(layer.mean[channel]);
    const float* before = layer.before(block) + channel * map_size(layer.side) + width + kLanes;
    const long map = (block * layer.out + channel) * map_size(out_side) + out_width + kLanes;
    float* result = to + (block * layer.out + channel) * map_size(layer.side) + width + kLanes;
    for (long row = 0; row < out_side; ++row)
      for (long i = 0; i < out_side * kLanes; i += kLanes) {
        const Vector upstream = load(gradient + map + row * out_width + i);
        if (!layer.pool) {
          const Vector convolved = load(before + row * width + i);
          const Vector value = convolved * factor + offset > Vector{} ? upstream : Vector{};
          store(result + row * width + i, value);
          total += value;
          products += value * (convolved - mean);
          continue;
        }
        const Vector output = load(layer.output + map + row * out_width + i);
        Integers open = output > Vector{};  // the lanes whose largest value was not met yet
        for (const long step : {0L, kLanes, width, width + kLanes}) {
          const long at = 2 * row * width + 2 * i + step;
          const Vector convolved = load(before + at);
          const Integers largest = open & (convolved * factor + offset == output);
          open &= ~largest;
          const Vector value = largest ? upstream : Vector{};
          store(result + at, value);
          total += value;
          products += value * (convolved - mean);
        }
      }
    sums.values[channel] = total;
    sums.squares[channel] = products;
  }
}

// The gradients of the scales and shifts.
inline void affine_gradient(const Workspace& shared, const ConvolutionLayer& layer, long blocks) {
  for (long channel = 0; channel < layer.out; ++channel) {
    shared.gradient[layer.shift + channel] = shared.reduced(blocks, layer.out, channel, &Sums::values);
    shared.gradient[layer.scale + channel] =
        shared.reduced(blocks, layer.out, channel, &Sums::squares) * layer.inverse[channel];
  }
}

// Replaces the gradient after BatchNorm by that before it, with a border of zeros.
inline void normalise_backward(const Workspace& shared, const ConvolutionLayer& layer, long count, long block,
                               Vector mask, float* gradient) {
  const long width = row_size(layer.side), map = map_size(layer.side);
  const float values = static_cast<float>(count) * layer.side * layer.side;
  for (long channel = 0; channel < layer.out; ++channel) {
    const float inverse = layer.inverse[channel], scale = shared.parameters[layer.scale + channel] * inverse;
    const float slope = scale * shared.gradient[layer.scale + channel] / values * inverse;
    const Vector factor = broadcast(scale), by_value = broadcast(slope);
    const Vector offset = broadcast(layer.mean[channel] * slope - scale * shared.gradient[layer.shift + channel] / values);
    const float* before = layer.before(block) + channel * map;
    float* at = gradient + (block * layer.out + channel) * map;
    std::memset(at, 0, width * sizeof(float));
    std::memset(at + (layer.side + 1) * width, 0, width * sizeof(float));
    for (long row = 1; row <= layer.side; ++row) {
      store(at + row * width, Vector{});
      store(at + (row + 1) * width - kLanes, Vector{});
      for (long i = row * width + kLanes; i < (row + 1) * width - kLanes; i += kLanes)
        store(at + i, (load(at + i) * factor - load(before + i) * by_value + offset) * mask);
    }
  }
}

}  // namespace alma

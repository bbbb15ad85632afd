// A VGG: 3x3 convolutions, each with BatchNorm and ReLU, poolings after some of them, and one linear layer.
//
// BatchNorm removes the bias of a convolution. So no bias is added in training; it shifts the running mean only. Lanes
// that hold no image are zero in every map, and change no sum.
#pragma once

#include <cmath>

#include "convolution.h"
#include "images.h"
#include "network.h"
#include "product.h"
#include "threads.h"
#include "winograd.h"

namespace alma {

class Vgg final : public Network {
 public:
  // widths: channels of the images, then of each convolution. pools: whether a pooling follows each convolution.
  Vgg(const std::vector<long>& widths, const std::vector<bool>& pools, long side, bool bias, long class_count,
      Threads& threads)
      : channels_(widths[0]), side_(side), threads_(threads) {
    long size = 0, buffers = 0;
    for (std::size_t number = 0; number < pools.size(); ++number) {
      Layer layer;
      layer.in = widths[number];
      layer.out = widths[number + 1];
      layer.side = side;
      layer.pool = pools[number];
      layer.weight = size;
      layer.bias = size += 9 * layer.in * layer.out;
      layer.scale = size += bias ? layer.out : 0;
      layer.shift = size += layer.out;
      size += layer.out;
      layer.running_mean = buffers;
      layer.running_variance = buffers += layer.out;
      buffers += layer.out;
      layer.has_bias = bias;
      layer.mean.resize(layer.out);
      layer.inverse.resize(layer.out);
      side /= layer.pool ? 2 : 1;
      widest_ = std::max({widest_, layer.in, layer.out});
      largest_ = std::max({largest_, layer.in * map_size(layer.side), layer.out * map_size(layer.side)});
      layers_.push_back(std::move(layer));
    }
    classes = class_count;
    classifier_ = size;
    size_ = size + classes * (widths.back() + 1);
    buffers_.resize(buffers);
    allocate(size_);
    totals_.resize(16 * widest_ * widest_ * kLanes);
    transformed_.resize(16 * widest_ * widest_);
    scratch_size_ = padded(winograd_scratch(widest_, widest_));
    scratch_.resize(threads_.count() * scratch_size_);
  }

  void gather(const Examples& from, const std::int64_t* index, const Crops& crops, long count,
              Batch& batch) const override {
    gather_images(from, index, crops, count, channels_, side_, threads_, batch);
  }

  const float* forward(const Batch& batch, bool training) override {
    const long columns = padded(batch.count), blocks = columns / kLanes;
    reserve(blocks);
    const float* x = batch.x;
    for (Layer& layer : layers_) {
      convolve_all(x, {parameters + layer.weight, 9 * layer.in, 9, 1}, layer.convolved, layer.in, layer.out, layer.side,
                   blocks, training);
      statistics(layer, batch.count, training);
      threads_.run(blocks, [&](long block, int) { activate(layer, block, lanes(batch, block)); });
      x = layer.output;
    }
    const Layer& last = layers_.back();
    for (long channel = 0; channel < last.out; ++channel)
      for (long block = 0; block < blocks; ++block)
        store(features_ + channel * columns + block * kLanes, load(centre(last.output, block * last.out + channel)));
    multiply({parameters + classifier_, last.out, 1}, features_, columns, parameters + classifier_ + classes * last.out,
             logits_, columns, classes, last.out, columns);
    return logits_;
  }

  void backward(const Batch& batch, const float* logits_gradient) override {
    const long columns = padded(batch.count), blocks = columns / kLanes;
    classify_backward(logits_gradient, columns);
    for (std::size_t number = layers_.size(); number-- > 0;) {
      Layer& layer = layers_[number];
      threads_.run(blocks, [&](long block, int) { activate_backward(layer, block); });
      for (long channel = 0; channel < layer.out; ++channel) {
        gradient[layer.shift + channel] = reduced(blocks, layer.out, channel, &Sums::values);
        gradient[layer.scale + channel] = reduced(blocks, layer.out, channel, &Sums::squares) * layer.inverse[channel];
      }
      threads_.run(blocks, [&](long block, int) { normalise_backward(layer, batch.count, block, lanes(batch, block)); });
      const float* x = number > 0 ? layers_[number - 1].output : batch.x;
      threads_.run(threads_.count(), [&](long part, int thread) {
        const long begin = layer.in * part / threads_.count(), end = layer.in * (part + 1) / threads_.count();
        Vector* totals = reinterpret_cast<Vector*>(totals_.data());
        if (winograd_pays(layer.in, layer.out))
          winograd_correlate(x, before_gradient_, gradient + layer.weight, totals, scratch_ + thread * scratch_size_,
                             blocks, layer.in, layer.out, layer.side, begin, end);
        else
          correlate(x, before_gradient_, gradient + layer.weight, totals, blocks, layer.in, layer.out, layer.side,
                    begin, end);
      });
      if (number == 0) break;
      // The gradient of the input is a convolution, too, with the taps in reverse order.
      convolve_all(before_gradient_, {parameters + layer.weight + 8, 9, 9 * layer.in, -1}, output_gradient_, layer.out,
                   layer.in, layer.side, blocks, false);
    }
  }

  void read(const float* from) override {
    std::memcpy(parameters, from, size_ * sizeof(float));
    std::memcpy(buffers_.data(), from + size_, buffers_.size() * sizeof(float));
  }

  void write(float* to) const override {
    std::memcpy(to, parameters, size_ * sizeof(float));
    std::memcpy(to + size_, buffers_.data(), buffers_.size() * sizeof(float));
  }

 private:
  struct Layer {
    long in, out, side;
    bool pool, has_bias;
    long weight, bias, scale, shift;      // in the parameters
    long running_mean, running_variance;  // in the buffers
    std::vector<float> mean, inverse;     // of the outputs of the convolution; inverse: of the standard deviation
    Buffer convolved, output;             // before BatchNorm; after ReLU and pooling
    float* before(long block) const { return convolved + block * out * map_size(side); }
    long output_side() const { return pool ? side / 2 : side; }
  };

  static bool winograd_pays(long inputs, long outputs) { return std::min(inputs, outputs) >= 16; }

  // The convolutions of all blocks; `with_sums` also writes the sums of the outputs.
  void convolve_all(const float* x, Weights weights, float* y, long inputs, long outputs, long side, long blocks,
                    bool with_sums) {
    const bool winograd = winograd_pays(inputs, outputs);
    if (winograd) transform_weights(weights, transformed_, outputs, inputs);
    threads_.run(blocks, [&](long block, int thread) {
      const float* from = x + block * inputs * map_size(side);
      float* to = y + block * outputs * map_size(side);
      const Sums sums = with_sums ? sums_of(block, outputs) : Sums{nullptr, nullptr};
      if (winograd)
        winograd_convolve(from, transformed_, to, inputs, outputs, side, sums, scratch_ + thread * scratch_size_);
      else
        convolve(from, weights, to, inputs, outputs, side, sums);
    });
  }

  static float* centre(float* maps, long number) { return maps + number * map_size(1) + row_size(1) + kLanes; }

  // 1 in the lanes of a block that hold an image, 0 in the others.
  static Vector lanes(const Batch& batch, long block) {
    Vector mask{};
    for (long lane = 0; lane < kLanes && block * kLanes + lane < batch.count; ++lane) mask[lane] = 1.0f;
    return mask;
  }

  void reserve(long blocks) {
    if (blocks <= blocks_) return;
    blocks_ = blocks;
    for (Layer& layer : layers_) {
      layer.convolved.resize(blocks * layer.out * map_size(layer.side));
      layer.output.resize(blocks * layer.out * map_size(layer.output_side()));
    }
    before_gradient_.resize(blocks * largest_);
    output_gradient_.resize(blocks * largest_);
    sums_.resize(blocks * 2 * widest_ * kLanes);
    features_.resize(layers_.back().out * blocks * kLanes);
    logits_.resize(classes * blocks * kLanes);
  }

  Sums sums_of(long block, long outputs, bool clear = true) const {
    Vector* at = reinterpret_cast<Vector*>(sums_.data()) + block * 2 * widest_;
    if (clear) std::memset(static_cast<void*>(at), 0, 2 * widest_ * sizeof(Vector));
    return {at, at + outputs};
  }

  // The sum over all blocks, in their order.
  float reduced(long blocks, long outputs, long channel, Vector* Sums::*which) const {
    Vector total{};
    for (long block = 0; block < blocks; ++block) total += (sums_of(block, outputs, false).*which)[channel];
    return sum(total);
  }

  // The mean and the inverse standard deviation of each channel: of the batch, or, for an answer, the running ones.
  void statistics(Layer& layer, long count, bool training) {
    constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;  // the defaults of PyTorch
    const long blocks = padded(count) / kLanes;
    const double values = static_cast<double>(count) * layer.side * layer.side;
    for (long channel = 0; channel < layer.out; ++channel) {
      const float bias = layer.has_bias ? parameters[layer.bias + channel] : 0.0f;
      float& running_mean = buffers_[layer.running_mean + channel];
      float& running_variance = buffers_[layer.running_variance + channel];
      if (!training) {
        layer.mean[channel] = running_mean - bias;
        layer.inverse[channel] = 1.0f / std::sqrt(running_variance + kEpsilon);
        continue;
      }
      const double mean = reduced(blocks, layer.out, channel, &Sums::values) / values;
      const double squares = reduced(blocks, layer.out, channel, &Sums::squares) / values;
      const float variance = static_cast<float>(std::max(squares - mean * mean, 0.0));
      layer.mean[channel] = static_cast<float>(mean);
      layer.inverse[channel] = 1.0f / std::sqrt(variance + kEpsilon);
      running_mean += kMomentum * (static_cast<float>(mean) + bias - running_mean);
      running_variance += kMomentum * (variance * static_cast<float>(values / (values - 1)) - running_variance);
    }
  }

  // BatchNorm as factor * value + offset.
  void affine(const Layer& layer, long channel, Vector& factor, Vector& offset) const {
    const float scale = layer.inverse[channel] * parameters[layer.scale + channel];
    factor = broadcast(scale);
    offset = broadcast(parameters[layer.shift + channel] - layer.mean[channel] * scale);
  }

  // output = pooling(ReLU(BatchNorm(convolved))) of one block.
  void activate(Layer& layer, long block, Vector mask) {
    const long width = row_size(layer.side), out_side = layer.output_side(), out_width = row_size(out_side);
    for (long channel = 0; channel < layer.out; ++channel) {
      Vector factor, offset;
      affine(layer, channel, factor, offset);
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

  // The gradient before ReLU and pooling, in `before_gradient_`, with its sums, and those of its products with the
  // centred outputs of the convolution.
  void activate_backward(const Layer& layer, long block) {
    const long width = row_size(layer.side), out_side = layer.output_side(), out_width = row_size(out_side);
    const Sums sums = sums_of(block, layer.out);
    for (long channel = 0; channel < layer.out; ++channel) {
      Vector factor, offset, total{}, products{};
      affine(layer, channel, factor, offset);
      const Vector mean = broadcast(layer.mean[channel]);
      const float* before = layer.before(block) + channel * map_size(layer.side) + width + kLanes;
      const long map = (block * layer.out + channel) * map_size(out_side) + out_width + kLanes;
      float* to = before_gradient_ + (block * layer.out + channel) * map_size(layer.side) + width + kLanes;
      for (long row = 0; row < out_side; ++row)
        for (long i = 0; i < out_side * kLanes; i += kLanes) {
          const Vector output = load(layer.output + map + row * out_width + i);
          const Vector upstream = load(output_gradient_ + map + row * out_width + i);
          if (!layer.pool) {
            const Vector value = output > Vector{} ? upstream : Vector{};
            store(to + row * width + i, value);
            total += value;
            products += value * (load(before + row * width + i) - mean);
            continue;
          }
          Integers open = output > Vector{};  // the lanes whose largest value was not met yet
          for (const long step : {0L, kLanes, width, width + kLanes}) {
            const long at = 2 * row * width + 2 * i + step;
            const Vector convolved = load(before + at);
            const Integers largest = open & (convolved * factor + offset == output);
            open &= ~largest;
            const Vector value = largest ? upstream : Vector{};
            store(to + at, value);
            total += value;
            products += value * (convolved - mean);
          }
        }
      sums.values[channel] = total;
      sums.squares[channel] = products;
    }
  }

  // The gradient before BatchNorm, in place, with a border of zeros.
  void normalise_backward(const Layer& layer, long count, long block, Vector mask) {
    const long width = row_size(layer.side), map = map_size(layer.side);
    const float values = static_cast<float>(count) * layer.side * layer.side;
    for (long channel = 0; channel < layer.out; ++channel) {
      const float inverse = layer.inverse[channel], scale = parameters[layer.scale + channel] * inverse;
      const float slope = scale * gradient[layer.scale + channel] / values * inverse;
      const Vector factor = broadcast(scale), by_value = broadcast(slope);
      const Vector offset = broadcast(layer.mean[channel] * slope - scale * gradient[layer.shift + channel] / values);
      const float* before = layer.before(block) + channel * map;
      float* at = before_gradient_ + (block * layer.out + channel) * map;
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

  void classify_backward(const float* logits_gradient, long columns) {
    const long features = layers_.back().out;
    for (long k = 0; k < classes; ++k) {
      const float* delta = logits_gradient + k * columns;
      for (long feature = 0; feature <= features; ++feature) {
        Vector total{};
        for (long i = 0; i < columns; i += kLanes)
          total += feature < features ? load(delta + i) * load(features_ + feature * columns + i) : load(delta + i);
        const long bias = classifier_ + classes * features + k;
        gradient[feature < features ? classifier_ + k * features + feature : bias] = sum(total);
      }
    }
    multiply({parameters + classifier_, 1, features}, logits_gradient, columns, nullptr, features_, columns, features,
             classes, columns);
    for (long feature = 0; feature < features; ++feature)
      for (long block = 0; block < columns / kLanes; ++block)
        store(centre(output_gradient_, block * features + feature), load(features_ + feature * columns + block * kLanes));
  }

  const long channels_, side_;
  Threads& threads_;
  std::vector<Layer> layers_;
  std::vector<float> buffers_;  // running means and variances
  long classifier_ = 0, size_ = 0, widest_ = 0, largest_ = 0, blocks_ = 0, scratch_size_ = 0;
  Buffer before_gradient_, output_gradient_, sums_, totals_, features_, logits_, transformed_, scratch_;
};

}  // namespace alma

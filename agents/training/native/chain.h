// A chain of 3x3 convolutions, each with BatchNorm and ReLU, and a pooling at its end: a block of a VGG.
//
// A block is kLanes images here. So a block of a VGG is called a chain.
#pragma once

#include "convolution_layer.h"

namespace alma {

class Chain {
 public:
  // widths: channels of the input, then of each convolution. parameters, buffers: as in ConvolutionLayer.
  Chain(const std::vector<long>& widths, long side, bool bias, long& parameters, long& buffers, Workspace& shared)
      : shared_(shared) {
    for (std::size_t number = 0; number + 1 < widths.size(); ++number) {
      const bool last = number + 2 == widths.size();
      shared.include(widths[number], widths[number + 1], side);
      layers_.emplace_back(widths[number], widths[number + 1], side, last, bias, parameters, buffers);
    }
  }

  // The maps after the pooling.
  const Buffer& output() const { return layers_.back().output; }

  void reserve(long blocks) {
    for (ConvolutionLayer& layer : layers_) layer.reserve(blocks);
  }

  // x: maps of `count` images. A thread does as much as it can with a block of kLanes images while it is in its cache.
  void forward(const float* x, long count, bool training) {
    const long blocks = padded(count) / kLanes;
    const auto finish = [&](ConvolutionLayer& layer, long block) {
      if (layer.has_output()) activate(layer, block, lanes(count, block));
    };
    Input input{x, nullptr, nullptr, count};
    for (std::size_t number = 0; number < layers_.size(); ++number) {
      ConvolutionLayer& layer = layers_[number];
      const Weights weights{shared_.parameters + layer.weight, 9 * layer.in, 9, 1};
      prepare(weights, layer.in, layer.out, layer.side);
      const auto block_forward = [&](long block, int thread) {
        if (number > 0) finish(layers_[number - 1], block);
        const Sums sums = training ? shared_.sums_of(block, layer.out) : Sums{nullptr, nullptr};
        convolve_block(input, weights, layer.convolved, layer.in, layer.out, layer.side, block, thread, sums);
      };
      shared_.threads.run(blocks, block_forward, layer.worth_threads(count));
      statistics(shared_, layer, count, training);
      input = layer.result(count);
    }
    ConvolutionLayer& last = layers_.back();
    shared_.threads.run(blocks, [&](long block, int) { finish(last, block); }, last.worth_threads(count));
  }

  // Replaces the gradient of the output, in `output_gradient`, by that of x, unless nobody needs it.
  void backward(const float* x, long count, bool needs_input_gradient) {
    const long blocks = padded(count) / kLanes;
    float* gradient = shared_.before_gradient;
    const ConvolutionLayer& last = layers_.back();
    const auto last_backward = [&](long block, int) {
      activate_backward(shared_, last, block, shared_.output_gradient, gradient);
    };
    shared_.threads.run(blocks, last_backward, last.worth_threads(count));
    for (std::size_t number = layers_.size(); number-- > 0;) {
      const ConvolutionLayer& layer = layers_[number];
      affine_gradient(shared_, layer, blocks);
      // The gradient of the input is a convolution, too, with the taps in reverse order.
      const Weights weights{shared_.parameters + layer.weight + 8, 9, 9 * layer.in, -1};
      const bool goes_on = number > 0 || needs_input_gradient;
      // After `normalise_backward`, `convolved` is not read any more.
      float* below = number == 0 ? shared_.output_gradient : layer.in == layer.out ? layer.convolved : layer.input_gradient;
      if (goes_on) prepare(weights, layer.out, layer.in, layer.side);
      const auto block_backward = [&](long block, int thread) {
        normalise_backward(shared_, layer, count, block, lanes(count, block), gradient);
        if (!goes_on) return;
        convolve_block({gradient, nullptr, nullptr, count}, weights, below, layer.out, layer.in, layer.side, block, thread,
                       {nullptr, nullptr});
        if (number > 0) activate_backward(shared_, layers_[number - 1], block, below, below);
      };
      shared_.threads.run(blocks, block_backward, layer.worth_threads(count));
      weights_gradient(layer, number > 0 ? layers_[number - 1].result(count) : Input{x, nullptr, nullptr, count}, gradient,
                       blocks);
      gradient = below;
    }
  }

 private:
  void prepare(Weights weights, long inputs, long outputs, long side) {
    if (winograd_fits(side)) transform_weights(weights, shared_.transformed, outputs, inputs);
  }

  // The convolution of one block; the weights are prepared.
  void convolve_block(const Input& x, Weights weights, float* y, long inputs, long outputs, long side, long block,
                      int thread, Sums sums) const {
    if (winograd_fits(side))
      winograd_convolve(x, shared_.transformed, y, inputs, outputs, side, block, sums, shared_.scratch_of(thread));
    else
      convolve(x.maps + block * inputs * map_size(side), weights, y + block * outputs * map_size(side), inputs, outputs,
               side, sums);
  }

  // From all blocks: each thread has channels of its own, so that the order of the sums is always the same.
  void weights_gradient(const ConvolutionLayer& layer, const Input& x, const float* dy, long blocks) {
    const long threads = shared_.threads.count(), fours = (layer.out + 3) / 4;
    Vector* totals = reinterpret_cast<Vector*>(shared_.totals.data());
    float* to = shared_.gradient + layer.weight;
    const auto first = [&](long part, long of) { return of * part / threads; };
    const auto some_channels = [&](long part, int thread) {
      if (winograd_fits(layer.side))
        winograd_correlate(x, dy, to, totals, shared_.scratch_of(thread), blocks, layer.in, layer.out, layer.side,
                           4 * first(part, fours), std::min(layer.out, 4 * first(part + 1, fours)));
      else
        correlate(x.maps, dy, to, totals, blocks, layer.in, layer.out, layer.side, first(part, layer.in),
                  first(part + 1, layer.in));
    };
    shared_.threads.run(threads, some_channels, layer.worth_threads(x.count));
  }

  Workspace& shared_;
  std::vector<ConvolutionLayer> layers_;
};

}  // namespace alma

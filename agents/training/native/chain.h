// A chain of 3x3 convolutions, each with BatchNorm and ReLU, and a pooling at its end: a block of a VGG.
//
// A block is 16 images here. So a block of a VGG is called a chain.
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

  // x: maps of `count` images.
  void forward(const float* x, long count, bool training) {
    const long blocks = padded(count) / kLanes;
    for (ConvolutionLayer& layer : layers_) {
      convolve_all(x, {shared_.parameters + layer.weight, 9 * layer.in, 9, 1}, layer.convolved, layer.in, layer.out,
                   layer.side, blocks, training);
      statistics(shared_, layer, count, training);
      shared_.threads.run(blocks, [&](long block, int) { activate(shared_, layer, block, lanes(count, block)); });
      x = layer.output;
    }
  }

  // Replaces the gradient of the output, in `output_gradient`, by that of x, unless nobody needs it.
  void backward(const float* x, long count, bool needs_input_gradient) {
    Threads& threads = shared_.threads;
    const long blocks = padded(count) / kLanes;
    for (std::size_t number = layers_.size(); number-- > 0;) {
      const ConvolutionLayer& layer = layers_[number];
      threads.run(blocks, [&](long block, int) { activate_backward(shared_, layer, block); });
      affine_gradient(shared_, layer, blocks);
      threads.run(blocks, [&](long block, int) { normalise_backward(shared_, layer, count, block, lanes(count, block)); });
      const float* from = number > 0 ? layers_[number - 1].output : x;
      threads.run(threads.count(), [&](long part, int thread) {
        Vector* totals = reinterpret_cast<Vector*>(shared_.totals.data());
        float* to = shared_.gradient + layer.weight;
        const auto first = [&](long number, long of) { return of * number / threads.count(); };
        if (winograd_fits(layer.side)) {
          const long fours = (layer.out + 3) / 4;
          winograd_correlate(from, shared_.before_gradient, to, totals, shared_.scratch + thread * shared_.scratch_size,
                             blocks, layer.in, layer.out, layer.side, 4 * first(part, fours),
                             std::min(layer.out, 4 * first(part + 1, fours)));
        } else {
          correlate(from, shared_.before_gradient, to, totals, blocks, layer.in, layer.out, layer.side,
                    first(part, layer.in), first(part + 1, layer.in));
        }
      });
      if (number == 0 && !needs_input_gradient) break;
      // The gradient of the input is a convolution, too, with the taps in reverse order.
      convolve_all(shared_.before_gradient, {shared_.parameters + layer.weight + 8, 9, 9 * layer.in, -1},
                   shared_.output_gradient, layer.out, layer.in, layer.side, blocks, false);
    }
  }

 private:
  // The convolutions of all blocks; `with_sums` also writes the sums of the outputs.
  void convolve_all(const float* x, Weights weights, float* y, long inputs, long outputs, long side, long blocks,
                    bool with_sums) {
    const bool winograd = winograd_fits(side);
    if (winograd) transform_weights(weights, shared_.transformed, outputs, inputs);
    shared_.threads.run(blocks, [&](long block, int thread) {
      const float* from = x + block * inputs * map_size(side);
      float* to = y + block * outputs * map_size(side);
      const Sums sums = with_sums ? shared_.sums_of(block, outputs) : Sums{nullptr, nullptr};
      if (winograd)
        winograd_convolve(from, shared_.transformed, to, inputs, outputs, side, sums,
                          shared_.scratch + thread * shared_.scratch_size);
      else
        convolve(from, weights, to, inputs, outputs, side, sums);
    });
  }

  Workspace& shared_;
  std::vector<ConvolutionLayer> layers_;
};

}  // namespace alma

// What the layers of a network share: its numbers, its threads, and memory that no layer needs after its turn.
#pragma once

#include <algorithm>

#include "convolution.h"
#include "threads.h"
#include "winograd_gradient.h"

namespace alma {

struct Workspace {
  explicit Workspace(Threads& its_threads) : threads(its_threads) {}

  Threads& threads;
  float *parameters = nullptr, *gradient = nullptr, *buffers = nullptr;  // buffers: running means and variances
  // Gradients of maps: before BatchNorm of the last layer of a chain, and of the output of a chain.
  Buffer before_gradient, output_gradient;
  Buffer sums, totals, transformed, scratch;
  long widest = 0, largest = 0, scratch_size = 0, blocks = 0;  // largest: numbers of the maps of a block of kLanes images

  // Makes room for a layer with these channels and maps of this side.
  void include(long inputs, long outputs, long side) {
    widest = std::max({widest, inputs, outputs});
    scratch_size = std::max({scratch_size, winograd_scratch(inputs), winograd_scratch(outputs),
                             correlate_scratch(inputs, outputs, side)});
    largest = std::max({largest, inputs * map_size(side), outputs * map_size(side)});
  }

  // After all calls of `include`.
  void allocate() {
    totals.resize(3 * kElements * widest * widest * kLanes);
    transformed.resize(transformed_size(widest, widest));
    scratch.resize(threads.count() * scratch_size);
  }

  // Makes room for the maps of this many blocks of kLanes images.
  void reserve(long count) {
    if (count <= blocks) return;
    blocks = count;
    before_gradient.resize(blocks * largest);
    output_gradient.resize(blocks * largest);
    sums.resize(blocks * 2 * widest * kLanes);
  }

  float* scratch_of(int thread) const { return scratch + thread * scratch_size; }

  Sums sums_of(long block, long outputs, bool clear = true) const {
    Vector* at = reinterpret_cast<Vector*>(sums.data()) + block * 2 * widest;
    if (clear) std::memset(static_cast<void*>(at), 0, 2 * widest * sizeof(Vector));
    return {at, at + outputs};
  }

  // The sum over all blocks, in their order.
  float reduced(long of_blocks, long outputs, long channel, Vector* Sums::*which) const {
    Vector total{};
    for (long block = 0; block < of_blocks; ++block) total += (sums_of(block, outputs, false).*which)[channel];
    return sum(total);
  }
};

}  // namespace alma

// What a stage needs of a network: gather a mini-batch, forward, backward, and its numbers in PyTorch's order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "vector.h"

namespace alma {

// Examples in memory. `x` holds float32 (count, values), or uint8 images (count, channels, side, side) with `table`,
// the float of each byte in each channel (channels, 256).
struct Examples {
  const void* x;
  const std::int64_t* y;
  const float* table;
};

// How the images of a mini-batch are cut: offsets 0 .. 2 padding, and whether to mirror. Null pointers: not at all.
struct Crops {
  const std::uint8_t *top, *left, *mirror;
  int padding;
};

// A mini-batch in the layouts that a network reads. Columns count..padded(count) belong to no example.
struct Batch {
  long count = 0;
  Buffer x, transposed;
  bool stays = false;  // used several times, so that another layout pays
  std::vector<int> labels;
};

using Update = std::function<void(long place, const float* gradient, long size)>;

class Network {
 public:
  virtual ~Network() = default;
  // Row i of the batch is example index[i], or example i if `index` is null. The batch keeps its value of `stays`.
  virtual void gather(const Examples& from, const std::int64_t* index, const Crops& crops, long count,
                      Batch& batch) const = 0;
  // Returns the logits (classes, padded(count)). In training, normalisation uses the statistics of the batch.
  virtual const float* forward(const Batch& batch, bool training) = 0;
  // Calls update(place, gradient, size) once for each part of the parameters. `update` may change this part: the rest of
  // the backward pass does not read it. logits_gradient: (classes, padded(count)), 0 in the columns of no example.
  virtual void backward(const Batch& batch, const float* logits_gradient, const Update& update) = 0;
  // All parameters, then all buffers, in PyTorch's order.
  virtual void read(const float* from) = 0;
  virtual void write(float* to) const = 0;

  Buffer parameters, first, second;  // first, second: the state of the optimizer
  long classes = 0;

 protected:
  void allocate(long size) {
    for (Buffer* buffer : {&parameters, &first, &second}) buffer->resize(size);
  }
};

}  // namespace alma

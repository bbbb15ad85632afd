// A perceptron with ReLU, whose hidden layers may be mixtures of experts with soft gates.
//
// Activations are (features, examples), so that narrow layers fill the vectors, too. To transpose the weights of the first
// layer takes less time than to transpose the inputs, except those of a batch that stays. The weights of all experts and
// gates of a layer are the rows of one matrix.
#pragma once

#include "gates.h"
#include "network.h"
#include "product.h"

namespace alma {

class Mlp final : public Network {
 public:
  // sizes: inputs, hidden units of each layer, classes. gates: those of each hidden layer.
  Mlp(const std::vector<long>& sizes, std::vector<Gates> gates) {
    long size = 0, largest = 0;  // the number of parameters, and that of the largest block or of all biases of a layer
    gates.emplace_back(std::vector<int>{}, true);  // of the last layer
    for (std::size_t number = 0; number + 1 < sizes.size(); ++number) {
      Layer layer(std::move(gates[number]));
      layer.in = sizes[number];
      layer.out = sizes[number + 1];
      layer.hidden = number + 2 < sizes.size();
      layer.weight = size;
      layer.bias = size += padded(layer.rows()) * padded(layer.in);
      size += padded(layer.rows());
      largest = std::max({largest, layer.block() * padded(layer.in), padded(layer.rows())});
      layers_.push_back(std::move(layer));
    }
    classes = sizes.back();
    allocate(size);
    gradient_.resize(largest);
  }

  void gather(const Examples& from, const std::int64_t* index, const Crops&, long count, Batch& batch) const override {
    const long inputs = layers_[0].in, width = padded(inputs), columns = padded(count);
    if (batch.x.size() < width * columns) {
      batch.x.resize(width * columns);
      batch.labels.resize(columns);
    }
    batch.count = count;
    const float* x = static_cast<const float*>(from.x);
    for (long row = 0; row < count; ++row) {
      const long example = index ? index[row] : row;
      if (index && row + kAhead < count)
        for (long i = 0; i < inputs; i += 16) __builtin_prefetch(x + index[row + kAhead] * inputs + i);
      std::memcpy(batch.x + row * width, x + example * inputs, inputs * sizeof(float));
      batch.labels[row] = static_cast<int>(from.y[example]);
    }
    std::memset(batch.x + count * width, 0, (columns - count) * width * sizeof(float));
    if (!batch.stays) return;
    if (batch.transposed.size() < width * columns) batch.transposed.resize(width * columns);
    transpose(batch.x, width, batch.transposed, columns, columns, width);
  }

  const float* forward(const Batch& batch, bool) override {
    const long columns = padded(batch.count);
    const float* x = batch.stays ? batch.transposed.data() : nullptr;
    for (Layer& layer : layers_) {
      layer.reserve(columns);
      const long width = padded(layer.in);
      if (x == nullptr)
        first_layer(layer, batch, columns);
      else
        layer.for_each_block([&](long row, long rows) {
          multiply({parameters + layer.weight + row * width, width, 1}, x, columns, parameters + layer.bias + row,
                   layer.raw + row * columns, columns, rows, layer.in, columns);
        });
      if (layer.hidden)
        for (long i = 0; i < layer.gates.experts() * layer.out * columns; i += kLanes)
          store(layer.raw + i, rectified(load(layer.raw + i)));
      if (layer.gates.experts() > 1) blend(layer, columns);
      x = layer.value();
    }
    return x;
  }

  void backward(const Batch& batch, const float* delta, const Update& update) override {
    const long columns = padded(batch.count);
    for (std::size_t number = layers_.size(); number-- > 0;) {
      Layer& layer = layers_[number];
      const long width = padded(layer.in), rows = layer.rows();
      if (layer.gates.experts() > 1)
        blend_backward(layer, delta, columns);
      else
        for (long i = 0; i < layer.out * columns; i += kLanes)
          store(layer.raw_delta + i,
                !layer.hidden ? load(delta + i) : load(layer.raw + i) > Vector{} ? load(delta + i) : Vector{});
      const float* x = batch.x;
      if (number > 0) {
        Layer& below = layers_[number - 1];
        transpose(below.value(), columns, below.by_example, width, width, columns);
        x = below.by_example;
        multiply({parameters + layer.weight, 1, width}, layer.raw_delta, columns, nullptr, below.delta, columns, layer.in,
                 rows, columns);
        delta = below.delta;
      }
      layer.for_each_block([&](long row, long count) {
        multiply({layer.raw_delta + row * columns, columns, 1}, x, width, nullptr, gradient_, width, count, batch.count,
                 width);
        update(layer.weight + row * width, gradient_, count * width);
      });
      std::memset(gradient_, 0, padded(rows) * sizeof(float));
      for (long row = 0; row < rows; ++row) {
        Vector total{};
        for (long i = 0; i < columns; i += kLanes) total += load(layer.raw_delta + row * columns + i);
        gradient_[row] = sum(total);
      }
      update(layer.bias, gradient_, padded(rows));
    }
  }

  void read(const float* from) override {
    for_each_row([&](long at, long count) {
      std::memcpy(parameters + at, from, count * sizeof(float));
      from += count;
    });
  }

  void write(float* to) const override {
    for_each_row([&](long at, long count) {
      std::memcpy(to, parameters + at, count * sizeof(float));
      to += count;
    });
  }

 private:
  // Examples that are copied before one whose memory is requested: a random example is in no cache.
  static constexpr long kAhead = 2;

  // A layer; its parameters are weights (rows, padded(in)) and biases (rows). The rows are the outputs of all experts,
  // and then the logits of the gates.
  struct Layer {
    Gates gates;
    long in = 0, out = 0, weight = 0, bias = 0;
    bool hidden = false;
    // raw (rows, columns): outputs of the experts after ReLU, and logits of the gates; raw_delta: the gradient of `raw`
    // before ReLU. mixed (out, columns): the blend.
    Buffer raw, raw_delta, mixed, by_example, delta;

    explicit Layer(Gates its_gates) : gates(std::move(its_gates)) {}
    long rows() const { return gates.experts() * out + gates.logits(); }
    float* value() const { return gates.experts() > 1 ? mixed : raw; }

    // The most rows of a block. With up to about a thousand inputs, a second-level cache of 512 KiB holds their weights,
    // gradients and state of the optimizer.
    long block() const { return std::max(24L, 16384 / padded(in)); }
    // Calls visit(first row, rows) for blocks of about equal size.
    template <typename Visit>
    void for_each_block(Visit visit) const {
      const long blocks = (rows() + block() - 1) / block();
      for (long i = 0; i < blocks; ++i) visit(rows() * i / blocks, rows() * (i + 1) / blocks - rows() * i / blocks);
    }

    void reserve(long columns) {
      if (delta.size() >= padded(out) * columns) return;
      for (Buffer* buffer : {&mixed, &by_example, &delta}) buffer->resize(padded(out) * columns);
      gates.reserve(columns);
      for (Buffer* buffer : {&raw, &raw_delta}) buffer->resize(padded(rows()) * columns);
    }
  };

  // `raw` before ReLU: the product of the inputs and the transposed weights, and then its transpose.
  void first_layer(Layer& layer, const Batch& batch, long columns) {
    const long width = padded(layer.in), rows = padded(layer.rows());
    // An odd number of cache lines: a product reads a column of lines, which then have different places in the cache.
    const long stride = ((rows + 15) / 16 | 1) * 16;
    if (transposed_.size() < width * stride) transposed_.resize(width * stride);
    if (by_example_.size() < columns * stride) by_example_.resize(columns * stride);
    transpose(parameters + layer.weight, width, transposed_, stride, rows, width);
    for (long example = 0; example < columns; ++example)
      std::memcpy(by_example_ + example * stride, parameters + layer.bias, rows * sizeof(float));
    multiply({batch.x, width, 1}, transposed_, stride, nullptr, by_example_, stride, columns, layer.in, rows, true);
    transpose(by_example_, stride, layer.raw, columns, columns, rows);
  }

  // The sum of the experts' outputs, weighted by their shares.
  static void blend(Layer& layer, long columns) {
    const long experts = layer.gates.experts();
    for (long i = 0; i < columns; i += kLanes) layer.gates.open(layer.raw + experts * layer.out * columns, columns, i);
    for (long row = 0; row < layer.out; ++row)
      for (long i = 0; i < columns; i += kLanes) {
        Vector total{};
        for (long expert = 0; expert < experts; ++expert)
          total += load(layer.gates.share + expert * columns + i) *
                   load(layer.raw + (expert * layer.out + row) * columns + i);
        store(layer.mixed + row * columns + i, total);
      }
  }

  // The gradient of `raw` before ReLU, given that of the blend.
  static void blend_backward(Layer& layer, const float* delta, long columns) {
    const long experts = layer.gates.experts();
    for (long i = 0; i < columns; i += kLanes) {
      for (long expert = 0; expert < experts; ++expert) {
        const Vector share = load(layer.gates.share + expert * columns + i);
        Vector gain{};
        for (long row = 0; row < layer.out; ++row) {
          const long at = (expert * layer.out + row) * columns + i;
          const Vector output = load(layer.raw + at), upstream = load(delta + row * columns + i);
          gain += output * upstream;
          store(layer.raw_delta + at, output > Vector{} ? share * upstream : Vector{});
        }
        store(layer.gates.gain + expert * columns + i, gain);
      }
      layer.gates.backward(layer.raw_delta + experts * layer.out * columns, columns, i);
    }
  }

  // Calls visit(offset, count) for the parts of the parameters, in PyTorch's order: weights and biases of each expert,
  // then of the gates.
  template <typename Visit>
  void for_each_row(Visit visit) const {
    for (const Layer& layer : layers_)
      for (long first = 0; first < layer.rows();) {
        const long count = first < layer.gates.experts() * layer.out ? layer.out : layer.rows() - first;
        for (long row = first; row < first + count; ++row) visit(layer.weight + row * padded(layer.in), layer.in);
        visit(layer.bias + first, count);
        first += count;
      }
  }

  std::vector<Layer> layers_;
  Buffer gradient_;  // of a block of weights, or of the biases of a layer
  Buffer transposed_, by_example_;  // weights of the first layer (inputs, rows), and its outputs (examples, rows)
};

}  // namespace alma

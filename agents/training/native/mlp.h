// A perceptron with ReLU, whose hidden layers may be mixtures of experts with a tree of soft gates.
//
// Activations are (features, examples), so that narrow layers fill the vectors, too. The weights of all experts and gates
// of a layer are the rows of one matrix.
#pragma once

#include "network.h"
#include "product.h"

namespace alma {

class Mlp final : public Network {
 public:
  // sizes: inputs, hidden units of each layer, classes. splits: for each hidden layer, the leaf that each gate divided
  // (`agents.networks.gate_tree`); none for a layer without gates.
  Mlp(const std::vector<long>& sizes, std::vector<std::vector<int>> splits) {
    long size = 0;
    splits.emplace_back();  // of the last layer
    for (std::size_t number = 0; number + 1 < sizes.size(); ++number) {
      Layer layer;
      layer.in = sizes[number];
      layer.out = sizes[number + 1];
      layer.splits = std::move(splits[number]);
      layer.hidden = number + 2 < sizes.size();
      layer.weight = size;
      layer.bias = size += layer.rows() * padded(layer.in);
      size += padded(layer.rows());
      layers_.push_back(std::move(layer));
    }
    classes = sizes.back();
    allocate(size);
  }

  void gather(const Examples& from, const std::int64_t* index, const Crops&, long count, Batch& batch) const override {
    const long inputs = layers_[0].in, width = padded(inputs), columns = padded(count);
    if (batch.x.size() < width * columns) {
      batch.x.resize(width * columns);
      batch.by_example.resize(width * columns);
      batch.labels.resize(columns);
    }
    batch.count = count;
    const float* x = static_cast<const float*>(from.x);
    for (long row = 0; row < count; ++row) {
      const long example = index ? index[row] : row;
      std::memcpy(batch.by_example + row * width, x + example * inputs, inputs * sizeof(float));
      batch.labels[row] = static_cast<int>(from.y[example]);
    }
    std::memset(batch.by_example + count * width, 0, (columns - count) * width * sizeof(float));
    transpose(batch.by_example, width, batch.x, columns, columns, width);
  }

  const float* forward(const Batch& batch, bool) override {
    const long columns = padded(batch.count);
    const float* x = batch.x;
    for (Layer& layer : layers_) {
      layer.reserve(columns);
      multiply({parameters + layer.weight, padded(layer.in), 1}, x, columns, parameters + layer.bias, layer.raw, columns,
               layer.rows(), layer.in, columns);
      if (layer.hidden)
        for (long i = 0; i < layer.experts() * layer.out * columns; i += kLanes)
          store(layer.raw + i, rectified(load(layer.raw + i)));
      if (layer.experts() > 1) blend(layer, columns);
      x = layer.value();
    }
    return x;
  }

  void backward(const Batch& batch, const float* delta) override {
    const long columns = padded(batch.count);
    for (std::size_t number = layers_.size(); number-- > 0;) {
      Layer& layer = layers_[number];
      const long width = padded(layer.in), rows = layer.rows();
      if (layer.experts() > 1)
        blend_backward(layer, delta, columns);
      else
        for (long i = 0; i < layer.out * columns; i += kLanes)
          store(layer.raw_delta + i,
                !layer.hidden ? load(delta + i) : load(layer.raw + i) > Vector{} ? load(delta + i) : Vector{});
      const float* x = batch.by_example;
      if (number > 0) {
        Layer& below = layers_[number - 1];
        transpose(below.value(), columns, below.by_example, width, width, columns);
        x = below.by_example;
      }
      multiply({layer.raw_delta, columns, 1}, x, width, nullptr, gradient + layer.weight, width, rows, batch.count, width);
      for (long row = 0; row < rows; ++row) {
        Vector total{};
        for (long i = 0; i < columns; i += kLanes) total += load(layer.raw_delta + row * columns + i);
        gradient[layer.bias + row] = sum(total);
      }
      if (number == 0) break;
      delta = layers_[number - 1].delta;
      multiply({parameters + layer.weight, 1, width}, layer.raw_delta, columns, nullptr, layers_[number - 1].delta,
               columns, layer.in, rows, columns);
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
  // A layer; its parameters are weights (rows, padded(in)) and biases (rows). The rows are the outputs of all experts,
  // and then two logits per gate.
  struct Layer {
    long in, out, weight, bias;
    bool hidden;
    std::vector<int> splits;
    // raw (rows, columns): outputs of the experts after ReLU, and logits of the gates; raw_delta: the gradient of `raw`
    // before ReLU. mixed (out, columns): the blend. right, node (gates, columns): the probability of a gate's right
    // child, and that of the gate itself. share (experts, columns), gain (experts, kLanes).
    Buffer raw, raw_delta, mixed, by_example, delta, right, node, share, gain;

    long experts() const { return static_cast<long>(splits.size()) + 1; }
    long rows() const { return experts() * out + 2 * static_cast<long>(splits.size()); }
    float* value() const { return splits.empty() ? raw : mixed; }
    void reserve(long columns) {
      if (delta.size() >= padded(out) * columns) return;
      for (Buffer* buffer : {&mixed, &by_example, &delta}) buffer->resize(padded(out) * columns);
      for (Buffer* buffer : {&right, &node, &share}) buffer->resize(experts() * columns);
      gain.resize(experts() * kLanes);
      for (Buffer* buffer : {&raw, &raw_delta}) buffer->resize(padded(rows()) * columns);
    }
  };

  // The probabilities of the gates and of the experts, and the sum of the experts' outputs, weighted by these.
  static void blend(Layer& layer, long columns) {
    const long experts = layer.experts();
    const float* logits = layer.raw + experts * layer.out * columns;
    for (long i = 0; i < columns; i += kLanes) {
      store(layer.share + i, broadcast(1.0f));
      for (long gate = 0; gate + 1 < experts; ++gate) {
        const Vector left = load(logits + 2 * gate * columns + i), right = load(logits + (2 * gate + 1) * columns + i);
        const Vector probability = 1.0f / (1.0f + exp(left - right));
        const long leaf = layer.splits[gate];
        for (long other = gate + 1; other > leaf; --other)
          store(layer.share + other * columns + i, load(layer.share + (other - 1) * columns + i));
        const Vector whole = load(layer.share + leaf * columns + i);
        store(layer.right + gate * columns + i, probability);
        store(layer.node + gate * columns + i, whole);
        store(layer.share + leaf * columns + i, whole * (1.0f - probability));
        store(layer.share + (leaf + 1) * columns + i, whole * probability);
      }
    }
    for (long row = 0; row < layer.out; ++row)
      for (long i = 0; i < columns; i += kLanes) {
        Vector total{};
        for (long expert = 0; expert < experts; ++expert)
          total += load(layer.share + expert * columns + i) * load(layer.raw + (expert * layer.out + row) * columns + i);
        store(layer.mixed + row * columns + i, total);
      }
  }

  // The gradient of `raw` before ReLU, given that of the blend.
  static void blend_backward(Layer& layer, const float* delta, long columns) {
    const long experts = layer.experts();
    float* logits = layer.raw_delta + experts * layer.out * columns;
    float* gain = layer.gain;  // (experts, kLanes): the change of the loss with the share of a subtree
    for (long i = 0; i < columns; i += kLanes) {
      for (long expert = 0; expert < experts; ++expert) {
        const Vector share = load(layer.share + expert * columns + i);
        Vector total{};
        for (long row = 0; row < layer.out; ++row) {
          const long at = (expert * layer.out + row) * columns + i;
          const Vector output = load(layer.raw + at), upstream = load(delta + row * columns + i);
          total += output * upstream;
          store(layer.raw_delta + at, output > Vector{} ? share * upstream : Vector{});
        }
        store(gain + expert * kLanes, total);
      }
      for (long gate = experts - 2; gate >= 0; --gate) {  // the last gate has two leaves: join them, and so on
        const long leaf = layer.splits[gate] * kLanes;
        const Vector right = load(layer.right + gate * columns + i);
        const Vector difference = load(gain + leaf + kLanes) - load(gain + leaf);
        const Vector slope = difference * load(layer.node + gate * columns + i) * right * (1.0f - right);
        store(logits + (2 * gate + 1) * columns + i, slope);
        store(logits + 2 * gate * columns + i, -slope);
        store(gain + leaf, load(gain + leaf) + right * difference);
        for (long other = leaf + kLanes; other < (gate + 1) * kLanes; other += kLanes)
          store(gain + other, load(gain + other + kLanes));
      }
    }
  }

  // Calls visit(offset, count) for the parts of the parameters, in PyTorch's order: weights and biases of each expert,
  // then of the gates.
  template <typename Visit>
  void for_each_row(Visit visit) const {
    for (const Layer& layer : layers_)
      for (long first = 0; first < layer.rows();) {
        const long count = first < layer.experts() * layer.out ? layer.out : layer.rows() - first;
        for (long row = first; row < first + count; ++row) visit(layer.weight + row * padded(layer.in), layer.in);
        visit(layer.bias + first, count);
        first += count;
      }
  }

  std::vector<Layer> layers_;
};

}  // namespace alma

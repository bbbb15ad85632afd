// The soft gates of a mixture of experts: the share of each expert in an example, from the logits of the gates.
//
// A tree (ALMA paper, section 4): a gate divides a leaf, and its right child has the probability p = 1 / (1 + exp(l - r))
// of its two logits. The share of an expert is the product of the probabilities on the path to its leaf. The flat mixture
// has a logit per expert, and the shares are their softmax.
#pragma once

#include <vector>

#include "vector.h"

namespace alma {

class Gates {
 public:
  // splits: the leaf that each gate of a tree divided (`agents.networks.gate_tree`), none for one expert.
  Gates(std::vector<int> splits, bool tree) : splits_(std::move(splits)), tree_(tree) {}

  long experts() const { return static_cast<long>(splits_.size()) + 1; }
  long logits() const { return splits_.empty() ? 0 : tree_ ? 2 * static_cast<long>(splits_.size()) : experts(); }

  // (experts, columns): the shares; gain: the change of the loss with each share.
  Buffer share, gain;

  void reserve(long columns) {
    if (share.size() >= experts() * columns) return;
    for (Buffer* buffer : {&share, &gain, &right_, &node_}) buffer->resize(experts() * columns);
  }

  // Computes the shares of the kLanes columns from column i on, given the logits (logits, columns).
  void open(const float* logits, long columns, long i) {
    tree_ ? open_tree(logits, columns, i) : open_flat(logits, columns, i);
  }

  // Writes the gradient of the logits of these columns, given the gains, which it changes.
  void backward(float* logits, long columns, long i) {
    tree_ ? tree_backward(logits, columns, i) : flat_backward(logits, columns, i);
  }

 private:
  void open_tree(const float* logits, long columns, long i) {
    store(share + i, broadcast(1.0f));
    for (long gate = 0; gate + 1 < experts(); ++gate) {
      const Vector left = load(logits + 2 * gate * columns + i), right = load(logits + (2 * gate + 1) * columns + i);
      const Vector probability = 1.0f / (1.0f + exp(left - right));
      const long leaf = splits_[gate];
      for (long other = gate + 1; other > leaf; --other)
        store(share + other * columns + i, load(share + (other - 1) * columns + i));
      const Vector whole = load(share + leaf * columns + i);
      store(right_ + gate * columns + i, probability);
      store(node_ + gate * columns + i, whole);
      store(share + leaf * columns + i, whole * (1.0f - probability));
      store(share + (leaf + 1) * columns + i, whole * probability);
    }
  }

  // The gain of a node is the mean of those of its children, weighted by their probabilities.
  void tree_backward(float* logits, long columns, long i) {
    for (long gate = experts() - 2; gate >= 0; --gate) {  // the last gate has two leaves: join them, and so on
      float* leaf = gain + splits_[gate] * columns + i;
      const Vector right = load(right_ + gate * columns + i);
      const Vector difference = load(leaf + columns) - load(leaf);
      const Vector slope = difference * load(node_ + gate * columns + i) * right * (1.0f - right);
      store(logits + (2 * gate + 1) * columns + i, slope);
      store(logits + 2 * gate * columns + i, -slope);
      store(leaf, load(leaf) + right * difference);
      for (long other = splits_[gate] + 1; other <= gate; ++other)
        store(gain + other * columns + i, load(gain + (other + 1) * columns + i));
    }
  }

  void open_flat(const float* logits, long columns, long i) {
    Vector highest = load(logits + i), total{};
    for (long expert = 1; expert < experts(); ++expert) highest = larger(load(logits + expert * columns + i), highest);
    for (long expert = 0; expert < experts(); ++expert) {
      const Vector power = exp(load(logits + expert * columns + i) - highest);
      store(share + expert * columns + i, power);
      total += power;
    }
    for (long expert = 0; expert < experts(); ++expert)
      store(share + expert * columns + i, load(share + expert * columns + i) / total);
  }

  void flat_backward(float* logits, long columns, long i) {
    Vector mean{};  // of the gains
    for (long at = i; at < experts() * columns; at += columns) mean += load(share + at) * load(gain + at);
    for (long at = i; at < experts() * columns; at += columns) store(logits + at, load(share + at) * (load(gain + at) - mean));
  }

  std::vector<int> splits_;
  bool tree_;
  Buffer right_, node_;  // (gates, columns): the probability of a gate's right child, and that of the gate itself
};

}  // namespace alma

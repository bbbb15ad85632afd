// A mixture of experts, each of which is a chain of convolutions and sees all images: output = sum of share_e * h_e(x).
//
// The gates see the input averaged to 4x4 pixels. A mixture of one expert has no gates and is that expert.
#pragma once

#include "chain.h"
#include "gates.h"
#include "linear.h"

namespace alma {

class Mixture {
 public:
  // widths, parameters, buffers: as in Chain; the gates come after all experts.
  Mixture(const std::vector<long>& widths, long side, bool bias, Gates gates, long& parameters, long& buffers,
          Workspace& shared)
      : in_(widths.front()), out_(widths.back()), side_(side), gates_(std::move(gates)), shared_(shared) {
    for (long expert = 0; expert < gates_.experts(); ++expert)
      experts_.emplace_back(widths, side, bias, parameters, buffers, shared);
    if (gated()) linear_ = Linear(kSummary * kSummary * in_, gates_.logits(), parameters);
  }

  // The maps of the weighted sum, after the poolings of the experts.
  const Buffer& output() const { return gated() ? mixed_ : experts_[0].output(); }

  void reserve(long blocks) {
    for (Chain& expert : experts_) expert.reserve(blocks);
    const long columns = blocks * kLanes;
    if (!gated() || summary_.size() >= linear_.in * columns) return;
    gates_.reserve(columns);
    summary_.resize(linear_.in * columns);
    logits_.resize(linear_.out * columns);
    for (Buffer* buffer : {&mixed_, &upstream_}) buffer->resize(blocks * out_ * map_size(side_ / 2));
    input_gradient_.resize(blocks * in_ * map_size(side_));
  }

  void forward(const float* x, long count, bool training) {
    for (Chain& expert : experts_) expert.forward(x, count, training);
    if (!gated()) return;
    const long columns = padded(count);
    shared_.threads.run(columns / kLanes, [&](long block, int) {
      const long i = block * kLanes;
      summarise(x, block, columns);
      linear_.forward(shared_.parameters, summary_ + i, logits_ + i, columns, kLanes);
      gates_.open(logits_, columns, i);
      for_each_pixel(out_, side_ / 2, block, [&](long at) {
        Vector total{};
        for (long expert = 0; expert < gates_.experts(); ++expert) total += share(expert, columns, i) * value(expert, at);
        store(mixed_ + at, total);
      });
    }, worth_threads(count, outputs() * gates_.experts()));
  }

  // Replaces the gradient of the output, in `output_gradient`, by that of x, unless nobody needs it.
  void backward(const float* x, long count, bool needs_input_gradient) {
    if (!gated()) return experts_[0].backward(x, count, needs_input_gradient);
    const long columns = padded(count), blocks = columns / kLanes;
    shared_.threads.run(blocks, [&](long block, int) {
      for (long expert = 0; expert < gates_.experts(); ++expert) {
        Vector gain{};
        for_each_pixel(out_, side_ / 2, block,
                       [&](long at) { gain += value(expert, at) * load(shared_.output_gradient + at); });
        store(gates_.gain + expert * columns + block * kLanes, gain);
      }
      gates_.backward(logits_, columns, block * kLanes);
      for_each_pixel(out_, side_ / 2, block, [&](long at) { store(upstream_ + at, load(shared_.output_gradient + at)); });
    }, worth_threads(count, outputs() * gates_.experts()));
    linear_.backward(shared_.parameters, shared_.gradient, summary_, logits_, columns);
    if (needs_input_gradient)
      shared_.threads.run(blocks, [&](long block, int) { summarise_backward(block, columns); },
                          worth_threads(count, inputs()));
    for (long expert = 0; expert < gates_.experts(); ++expert) {
      shared_.threads.run(blocks, [&](long block, int) {
        const Vector weight = share(expert, columns, block * kLanes);
        for_each_pixel(out_, side_ / 2, block,
                       [&](long at) { store(shared_.output_gradient + at, weight * load(upstream_ + at)); });
      }, worth_threads(count, outputs()));
      experts_[expert].backward(x, count, needs_input_gradient);
      if (!needs_input_gradient) continue;
      float* sum = expert + 1 < gates_.experts() ? input_gradient_.data() : shared_.output_gradient.data();
      shared_.threads.run(blocks, [&](long block, int) {
        for_each_pixel(in_, side_, block, [&](long at) {
          store(sum + at, load(input_gradient_ + at) + load(shared_.output_gradient + at));
        });
      }, worth_threads(count, inputs()));
    }
  }

 private:
  static constexpr long kSummary = 4;  // the side of what the gates see

  bool gated() const { return gates_.experts() > 1; }
  long inputs() const { return in_ * side_ * side_; }  // values of an image
  long outputs() const { return out_ * side_ * side_ / 4; }
  // Whether a pass over so many values of each image is worth several threads: some ten microseconds of it.
  static bool worth_threads(long count, long values) { return count * values > 100000; }
  Vector share(long expert, long columns, long i) const { return load(gates_.share + expert * columns + i); }
  Vector value(long expert, long at) const { return load(experts_[expert].output() + at); }

  // Calls visit(place) for all pixels of the maps of a block.
  template <typename Visit>
  static void for_each_pixel(long channels, long side, long block, Visit visit) {
    const long width = row_size(side);
    for (long map = block * channels; map < (block + 1) * channels; ++map)
      for (long row = 1; row <= side; ++row)
        for (long column = 1; column <= side; ++column) visit(map * map_size(side) + row * width + column * kLanes);
  }

  // The input averaged to 4x4 pixels: a pixel of the summary is the mean of a window.
  void summarise(const float* x, long block, long columns) {
    for (long at = block * kLanes; at < linear_.in * columns; at += columns) store(summary_ + at, Vector{});
    for_each_window(block, columns, [&](long to, long from, float share) {
      store(summary_ + to, load(summary_ + to) + share * load(x + from));
    });
  }

  // The gradient of the input that comes from the gates, in `input_gradient_`, given that of the summary.
  void summarise_backward(long block, long columns) {
    for_each_pixel(in_, side_, block, [&](long at) { store(input_gradient_ + at, Vector{}); });
    for_each_window(block, columns, [&](long from, long to, float share) {
      store(input_gradient_ + to, load(input_gradient_ + to) + share * load(summary_ + from));
    });
  }

  // Calls visit(place in the summary, place in the input, share) for all pixels of all windows, which are those of
  // torch.nn.AdaptiveAvgPool2d: windows of maps of fewer than 4x4 pixels overlap.
  template <typename Visit>
  void for_each_window(long block, long columns, Visit visit) const {
    const auto first = [&](long i) { return i * side_ / kSummary; };
    const auto last = [&](long i) { return ((i + 1) * side_ + kSummary - 1) / kSummary; };
    for (long feature = 0; feature < linear_.in; ++feature) {
      const long y = feature / kSummary % kSummary, x = feature % kSummary;
      const long map = (block * in_ + feature / (kSummary * kSummary)) * map_size(side_);
      const float share = 1.0f / static_cast<float>((last(y) - first(y)) * (last(x) - first(x)));
      for (long row = first(y); row < last(y); ++row)
        for (long column = first(x); column < last(x); ++column)
          visit(feature * columns + block * kLanes, map + (row + 1) * row_size(side_) + (column + 1) * kLanes, share);
    }
  }

  const long in_, out_, side_;
  Gates gates_;
  Workspace& shared_;
  std::vector<Chain> experts_;
  Linear linear_;  // of the gates
  // summary_ (16 in, columns): what the gates see, then its gradient; logits_: of the gates, then their gradient. The
  // others are maps; upstream_: the gradient of mixed_.
  Buffer summary_, logits_, mixed_, upstream_, input_gradient_;
};

}  // namespace alma

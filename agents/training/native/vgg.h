// A VGG: chains of convolutions, or mixtures of such chains, and one linear layer on the last maps, which have one pixel.
#pragma once

#include "images.h"
#include "linear.h"
#include "mixture.h"
#include "network.h"

namespace alma {

class Vgg final : public Network {
 public:
  // widths: channels of the images, then of each convolution. lengths: convolutions of each chain. gates: those of each
  // mixture of chains.
  Vgg(const std::vector<long>& widths, const std::vector<int>& lengths, std::vector<Gates> gates, long side, bool bias,
      long class_count, Threads& threads)
      : channels_(widths[0]), side_(side), shared_(threads) {
    long size = 0, buffers = 0;
    auto width = widths.begin();
    for (std::size_t number = 0; number < lengths.size(); width += lengths[number++]) {
      mixtures_.emplace_back(std::vector<long>(width, width + lengths[number] + 1), side, bias, std::move(gates[number]), size,
                             buffers, shared_);
      side /= 2;
    }
    classes = class_count;
    classifier_ = Linear(widths.back(), classes, size);
    size_ = size;
    buffers_.resize(buffers);
    allocate(size);
    gradient_.resize(size);
    shared_.parameters = parameters;
    shared_.gradient = gradient_;
    shared_.buffers = buffers_.data();
    shared_.allocate();
  }

  void gather(const Examples& from, const std::int64_t* index, const Crops& crops, long count,
              Batch& batch) const override {
    gather_images(from, index, crops, count, channels_, side_, shared_.threads, batch);
  }

  const float* forward(const Batch& batch, bool training) override {
    const long columns = padded(batch.count);
    reserve(columns / kLanes);
    const float* x = batch.x;
    for (Mixture& mixture : mixtures_) {
      mixture.forward(x, batch.count, training);
      x = mixture.output();
    }
    for_each_feature(columns, [&](long pixel, long at) { store(features_ + at, load(x + pixel)); });
    classifier_.forward(parameters, features_, logits_, columns, columns);
    return logits_;
  }

  void backward(const Batch& batch, const float* logits_gradient, const Update& update) override {
    const long columns = padded(batch.count);
    classifier_.backward(parameters, gradient_, features_, logits_gradient, columns);
    for_each_feature(columns, [&](long pixel, long at) { store(shared_.output_gradient + pixel, load(features_ + at)); });
    for (std::size_t number = mixtures_.size(); number-- > 0;)
      mixtures_[number].backward(number > 0 ? mixtures_[number - 1].output() : batch.x, batch.count, number > 0);
    update(0, gradient_, size_);
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
  void reserve(long blocks) {
    shared_.reserve(blocks);
    for (Mixture& mixture : mixtures_) mixture.reserve(blocks);
    if (logits_.size() >= classes * blocks * kLanes) return;
    features_.resize(classifier_.in * blocks * kLanes);
    logits_.resize(classes * blocks * kLanes);
  }

  // Calls visit(the place of the pixel of a map, the place in the features) for each channel of each block of kLanes images.
  template <typename Visit>
  void for_each_feature(long columns, Visit visit) const {
    for (long feature = 0; feature < classifier_.in; ++feature)
      for (long block = 0; block < columns / kLanes; ++block)
        visit((block * classifier_.in + feature) * map_size(1) + row_size(1) + kLanes, feature * columns + block * kLanes);
  }

  const long channels_, side_;
  Workspace shared_;
  std::vector<Mixture> mixtures_;
  Linear classifier_;
  std::vector<float> buffers_;
  long size_ = 0;
  Buffer gradient_, features_, logits_;
};

}  // namespace alma

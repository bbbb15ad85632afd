// Mini-batches of images: kLanes images in the lanes of a map, cut, mirrored and normalised while they are gathered.
#pragma once

#include <algorithm>

#include "convolution.h"
#include "network.h"
#include "product.h"
#include "threads.h"

namespace alma {

constexpr long kLargestSide = 64;  // of an image; sides are multiples of kLanes

// An image of a mini-batch, and how it is cut; example -1: none.
struct Image {
  long example = -1, top = 0, left = 0;
  bool mirror = false;
};

// Writes row y of an image in one channel, cut and mirrored, and normalised if the image is in bytes.
inline void copy_row(const Examples& from, const Image& image, long channels, long side, long channel, long y, float* to) {
  if (image.example < 0) return;
  const long first = ((image.example * channels + channel) * side + y + image.top) * side;
  if (from.table == nullptr) {
    std::memcpy(to, static_cast<const float*>(from.x) + first, side * sizeof(float));
    return;
  }
  const std::uint8_t* bytes = static_cast<const std::uint8_t*>(from.x) + first;
  const float* table = from.table + 256 * channel;
  const bool inside = y + image.top >= 0 && y + image.top < side;
  const long begin = inside ? std::max(0L, -image.left) : side, end = std::min(side, side - image.left);
  for (long x = 0; x < side; ++x) {
    const float value = table[x >= begin && x < end ? bytes[x + image.left] : 0];
    to[image.mirror ? side - 1 - x : x] = value;
  }
}

// Fills the maps (channels, side + 2, side + 2, kLanes) of each block of kLanes images, and the labels.
inline void gather_images(const Examples& from, const std::int64_t* index, const Crops& crops, long count, long channels,
                          long side, Threads& threads, Batch& batch) {
  const long size = channels * map_size(side), blocks = padded(count) / kLanes;
  if (batch.x.size() < size * blocks) {
    batch.x.resize(size * blocks);
    batch.labels.resize(padded(count));
  }
  batch.count = count;
  threads.run(blocks, [&](long block, int) {
    Image images[kLanes];
    for (long lane = 0; lane < kLanes && block * kLanes + lane < count; ++lane) {
      const long row = block * kLanes + lane;
      images[lane].example = index ? index[row] : row;
      if (crops.top) {
        images[lane].top = crops.top[row] - crops.padding;
        images[lane].left = crops.left[row] - crops.padding;
        images[lane].mirror = crops.mirror[row] != 0;
      }
      batch.labels[row] = static_cast<int>(from.y[images[lane].example]);
    }
    for (long channel = 0; channel < channels; ++channel)
      for (long y = 0; y < side; ++y) {
        Vector rows[kLargestSide] = {};  // (kLanes, side)
        float* at = reinterpret_cast<float*>(rows);
        for (long lane = 0; lane < kLanes; ++lane) copy_row(from, images[lane], channels, side, channel, y, at + lane * side);
        transpose(at, side, batch.x + block * size + channel * map_size(side) + (y + 1) * row_size(side) + kLanes, kLanes,
                  kLanes, side);
      }
  });
}

}  // namespace alma

// kLanes floats side by side, in the vector types of GCC and Clang, and memory that is aligned to them.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>

namespace alma {

// A vector is a register: GCC keeps longer ones in memory. kRegisters: how many there are.
#if defined(__AVX512F__)
constexpr long kLanes = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX__)
constexpr long kLanes = 8;
constexpr int kRegisters = 16;
#else  // SSE, or Arm's Neon, which has 32 registers
constexpr long kLanes = 4;
constexpr int kRegisters = 16;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4 * kLanes), may_alias));
typedef int Integers __attribute__((vector_size(4 * kLanes)));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
// As `load`, for a value that is used several times: it is loaded once, and the compiler does not load it at each use.
inline Vector load_once(const Vector& from) { return *const_cast<const volatile Vector*>(&from); }
inline Vector load_once(const float* from) { return load_once(*reinterpret_cast<const Vector*>(from)); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector broadcast(float value) { return value - Vector{}; }  // the sum would not keep -0
inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }  // b if one of them is NaN

// NaN if one of them is NaN.
inline Vector largest(Vector a, Vector b) { return ((a > b) | (a != a)) ? a : b; }

// ReLU, which must keep NaN: a network that diverged has a loss of NaN, and is not selected.
inline Vector rectified(Vector value) { return larger(Vector{}, value); }

// The sum of the lanes, always in the same order.
inline float sum(Vector value) {
  float total[kLanes];
  std::memcpy(total, &value, sizeof total);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) total[lane] += total[lane + half];
  return total[0];
}

// The lanes of two vectors at these places. GCC 11 has no __builtin_shufflevector.
#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Integers{__VA_ARGS__})
#endif

// Alternates the lanes of the first, or of the last, halves of two vectors.
#if defined(__AVX512F__)
inline Vector zip_first(Vector a, Vector b) {
  return SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Vector zip_last(Vector a, Vector b) {
  return SHUFFLED(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX__)
inline Vector zip_first(Vector a, Vector b) { return SHUFFLED(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Vector zip_last(Vector a, Vector b) { return SHUFFLED(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#else
inline Vector zip_first(Vector a, Vector b) { return SHUFFLED(a, b, 0, 4, 1, 5); }
inline Vector zip_last(Vector a, Vector b) { return SHUFFLED(a, b, 2, 6, 3, 7); }
#endif

#undef SHUFFLED

// exp(x) with a relative error of 2e-7 for -87 <= x <= 88; numbers outside give the value at the bound.
inline Vector exp(Vector x) {
  x = x < -87.0f ? broadcast(-87.0f) : x;
  x = x > 88.0f ? broadcast(88.0f) : x;
  const Vector round = broadcast(12582912.0f);  // 1.5 * 2^23: the sum has no digits after the point
  const Vector power = x * 1.44269504f + round - round;
  const Vector rest = x - power * 0.693359375f - power * -2.12194440e-4f;  // ln 2 in two parts
  Vector p = broadcast(1.9875691500e-4f);
  p = p * rest + 1.3981999507e-3f;
  p = p * rest + 8.3334519073e-3f;
  p = p * rest + 4.1665795894e-2f;
  p = p * rest + 1.6666665459e-1f;
  p = p * rest + 5.0000001201e-1f;
  p = p * rest * rest + rest + 1.0f;
  return p * (Vector)((__builtin_convertvector(power, Integers) + 127) << 23);
}

// The smallest multiple of kLanes that is at least `count`.
inline long padded(long count) { return (count + kLanes - 1) / kLanes * kLanes; }

// Floats at a multiple of 64 bytes, zero at first. A new buffer has no float: if it had some, the first `reserve` for a
// few floats would resize neither this buffer nor those that are resized with it.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void resize(long size) {
    std::free(data_);
    size_ = padded(size < 1 ? 1 : size);
    const std::size_t bytes = (size_ * sizeof(float) + 63) / 64 * 64;  // `aligned_alloc` demands a multiple
    data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    clear();
  }
  void clear() { std::memset(data_, 0, size_ * sizeof(float)); }
  long size() const { return size_; }
  float* data() const { return data_; }
  operator float*() const { return data_; }

 private:
  float* data_ = nullptr;
  long size_ = 0;
};

}  // namespace alma

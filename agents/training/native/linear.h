// A linear layer on columns: (features, examples) -> (outputs, examples).
#pragma once

#include "product.h"

namespace alma {

struct Linear {
  long in = 0, out = 0, weight = 0, bias = 0;  // weight (out, in) and bias (out): their places in the parameters

  Linear() = default;
  // parameters: the number of those before this layer, then also of its own.
  Linear(long inputs, long outputs, long& parameters) : in(inputs), out(outputs) {
    weight = parameters;
    bias = parameters += in * out;
    parameters += out;
  }

  // y = W x + b; `columns` of `stride` columns.
  void forward(const float* parameters, const float* x, float* y, long stride, long columns) const {
    multiply({parameters + weight, in, 1}, x, stride, parameters + bias, y, stride, out, in, columns);
  }

  // The gradients of the weights and biases, and then, in the place of x, that of x; dy: the gradient of y.
  void backward(const float* parameters, float* gradient, float* x, const float* dy, long columns) const {
    for (long row = 0; row < out; ++row) {
      const float* delta = dy + row * columns;
      for (long feature = 0; feature <= in; ++feature) {
        Vector total{};
        for (long i = 0; i < columns; i += kLanes)
          total += feature < in ? load(delta + i) * load(x + feature * columns + i) : load(delta + i);
        gradient[feature < in ? weight + row * in + feature : bias + row] = sum(total);
      }
    }
    multiply({parameters + weight, 1, in}, dy, columns, nullptr, x, columns, in, out, columns);
  }
};

}  // namespace alma

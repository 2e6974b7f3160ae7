// What the kernels of the instruction sets have in common.
#pragma once
#include <cstdint>

struct LstmSizes {
  int64_t T, B, F, H;
};

struct LstmKernel {
  void (*forward)(const LstmSizes&, const float* kernel, const float* bias, const float* x,
                  const float* valid, float* hidden, float* cell, float* gates);
  void (*backward)(const LstmSizes&, const float* kernel, const float* x, const float* valid,
                   const float* hidden, const float* cell, const float* gates,
                   const float* grad_hidden, bool last_only, float* grad_kernel, float* grad_bias,
                   float* grad_x);
};

// Floats per unit and row that the forward pass saves in each of its buffers, for the widest vector.
inline int64_t lstm_padded(int64_t hidden) { return (hidden + 15) / 16 * 16; }

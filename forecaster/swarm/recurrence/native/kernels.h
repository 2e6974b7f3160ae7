// What the kernels of the instruction sets have in common.
#pragma once
#include <cstdint>

// T steps, B rows (batch), F inputs, H hidden units.
struct Sizes {
  int64_t T, B, F, H;
};

// One model each. ``state`` is the saved cell state of an LSTM and unused by a GRU; ``new_bias`` the
// other way round. Without ``gates`` nothing is saved.
struct Weights {
  const float *kernel, *bias, *new_bias;
};
struct Run {
  const float *x, *valid;
  float *hidden, *state, *gates;
};
struct Gradients {
  const float* hidden;
  bool last_only;
  float *kernel, *bias, *new_bias, *x;  // x may be null
};

struct Cell {
  void (*forward)(const Sizes&, const Weights&, const Run&);
  void (*backward)(const Sizes&, const Weights&, const Run&, const Gradients&);
};

struct Kernels {
  Cell lstm, gru;
};

// Floats per unit and row in what the forward pass saves, whatever the width of the vectors.
inline int64_t saved_width(int64_t hidden) { return (hidden + 15) / 16 * 16; }

// Types shared by the kernels of all instruction sets.
#pragma once
#include <cstdint>

// T steps, B rows (batch), F inputs, H hidden units.
struct Sizes {
  int64_t T, B, F, H;
};

// Arrays of one model. ``state``, the saved cell state, is for an LSTM only, ``new_bias`` for a GRU
// only. If ``gates`` is null, nothing is saved for the backward pass.
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

// The same types for bfloat16 products (see bfloat16_kernel.h). ``hidden`` has all steps, or only the
// last. For the backward pass, unless null: ``words``, the operands of each step's products, and
// ``factors`` of derivatives in float16.
struct Bfloat16Run {
  const float *x, *valid;
  float* hidden;
  bool last_only;
  uint32_t* words;
  uint16_t* factors;
};

struct Bfloat16Cell {
  void (*forward)(const Sizes&, const Weights&, const Bfloat16Run&);
  void (*backward)(const Sizes&, const Weights&, const Bfloat16Run&, const Gradients&);
};

struct Bfloat16Kernels {
  Bfloat16Cell lstm, gru;
};

// Hidden units per row in saved arrays: rounded up to 16, which fits vectors of every width.
inline int64_t saved_width(int64_t hidden) { return (hidden + 15) / 16 * 16; }

// Sizes of the arrays that they save; keep bfloat16_forward in calls.py in step.
constexpr int64_t BFLOAT16_EXACT = 7;  // up to this many inputs are split in two to stay exact
constexpr int BFLOAT16_LSTM_SAVED = 6, BFLOAT16_GRU_SAVED = 5;
inline int64_t bfloat16_blocks(int64_t batch) { return (batch + 31) / 32; }
inline int64_t bfloat16_pairs(int64_t hidden) { return (hidden + 31) / 32; }
inline int64_t bfloat16_depth(int64_t inputs, int64_t hidden) {
  return bfloat16_pairs(hidden) + (inputs <= BFLOAT16_EXACT ? 1 : (inputs + 31) / 32);
}
inline int64_t bfloat16_words(int64_t batch, int64_t inputs, int64_t hidden) {
  return bfloat16_blocks(batch) * 2 * bfloat16_depth(inputs, hidden) * 256;
}
inline int64_t bfloat16_factors(int64_t batch, int64_t hidden, int saved) {
  return bfloat16_blocks(batch) * ((hidden + 15) / 16) * 32 * saved * 16;
}

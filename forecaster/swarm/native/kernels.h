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

// Keys and counters of two words. Every counter is hashed with every key, which gives numbers (keys,
// counters), or where they are paired with its own.
struct Hash {
  int64_t keys, counters;
  bool paired;
  const uint32_t *one, *two, *left, *right;
  uint32_t *out_left, *out_right;
};

struct Kernels {
  Cell lstm, gru;
  void (*threefry)(const Hash&);
};

// The same by products of bfloat16 (see bfloat16_kernel.h), which save other things for the way
// back: null, or the words that each step multiplies and the factors of derivatives in float16. ``hidden`` is of
// all steps or of the last only.
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

// Floats per unit and row in what the forward pass saves, whatever the width of the vectors.
inline int64_t saved_width(int64_t hidden) { return (hidden + 15) / 16 * 16; }

// What they save; bfloat16_forward in calls.py has the same numbers.
constexpr int64_t BFLOAT16_EXACT = 7;  // inputs that are split in two, and so stay exact
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

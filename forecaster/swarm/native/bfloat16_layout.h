// Layout of sizes, inputs and weights in the bfloat16 kernels.
//
// Hidden units come in blocks of 16 and rows of the batch in blocks of 32. A product may sum in any
// order, so a word holds the same unit of two blocks (2 p, 2 p + 1), and no data cross lanes; in an
// unpaired last block it may hold units that are 8 apart. Up to 7 inputs and their weights are split
// into two bfloat16 numbers, x = x_hi + x_lo, so that their products are as exact as in float32. More
// inputs do not fit.
#pragma once

#include "kernels.h"
#include "bfloat16_vectors.h"
#if defined(__AVX512BF16__)
#include "pair_products.h"
#else
#include "tiles.h"
#endif

namespace ISA_NAME {

struct Plan {
  int64_t T, B, F, H;
  int64_t units;    // blocks of 16 hidden units
  int64_t pairs;    // of such blocks
  int64_t blocks;   // of 32 rows
  bool exact;       // inputs are split in two
  int64_t x_tiles;  // tiles that hold the inputs of 16 rows
  int64_t depth;    // tiles that a gate sums over: the hidden units', then the inputs'

  explicit Plan(const Sizes& n) : T(n.T), B(n.B), F(n.F), H(n.H) {
    units = (H + 15) / 16;
    pairs = bfloat16_pairs(H);
    blocks = bfloat16_blocks(B);
    exact = F <= BFLOAT16_EXACT;
    x_tiles = exact ? 1 : (F + 31) / 32;
    depth = bfloat16_depth(F, H);
  }
  int64_t rows_of(int64_t block) const { return std::min<int64_t>(32, B - 32 * block); }
  TileRows tile_rows(int64_t block) const { return halves(rows_of(block)); }
  // Distance between the units of a word; an unpaired block may be halved.
  int64_t apart(int64_t pair) const { return HALVES_BLOCKS && 2 * pair + 1 == units ? 8 : 16; }
  // Rows of the weights of pair ``k`` of hidden units, in the tiles of lower and of upper halves.
  TileRows hidden_rows(int64_t k) const { return halves(H - 32 * k, apart(k)); }
  // Rows of the weights of the inputs, ``k`` tiles after the hidden units.
  TileRows input_rows(int64_t k) const {
    return exact ? TileRows{F, F} : halves(F - 32 * k);
  }
  // At most ``most`` of the rows left, and at most ``most`` of the rest.
  static TileRows halves(int64_t left, int64_t most = 16) {
    return {std::min(most, left), std::clamp<int64_t>(left - most, 0, most)};
  }
  // The depth that the gates sum over.
  Depth gate_depth() const {
    const int64_t hidden = x_tiles == 1 ? hidden_rows(pairs - 1).first : 16;
    return {depth, exact ? 2 * F : input_rows(x_tiles - 1).first, hidden};
  }
  // Words of the hidden units and inputs of one step: (block, two row tiles, depth, tile).
  int64_t step_words() const { return blocks * 2 * depth * TILE; }
  // Floats of a state: (block, unit block, 32 rows, 16).
  int64_t state() const { return blocks * units * 512; }
  // Offset of a row of tile ``k`` in the words of its block.
  int64_t row_at(int64_t row, int64_t tiles, int64_t k) const {
    return ((row / 16) * tiles + k) * TILE + (row % 16) * 16;
  }
};

static inline uint32_t* word_scratch(int slot, int64_t size) {
  return reinterpret_cast<uint32_t*>(scratch(slot, size));
}
static inline uint32_t* zero_words(int slot, int64_t size) {
  uint32_t* room = word_scratch(slot, size);
  std::memset(room, 0, size * sizeof(uint32_t));
  return room;
}

// Split inputs into words: first pairs of hi and lo for each input, then hi again.
INLINE words split_inputs(const float* x, int64_t F) {
  const vec all = load_first(x, F), high = rounded_to_half(all);
  const words both = pair_of(high, _mm512_sub_ps(all, high));
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 again = first_lanes(2 * F) & ~first_lanes(F);
  const words shifted = _mm512_maskz_permutexvar_epi32(
      again, _mm512_sub_epi32(lane, _mm512_set1_epi32(F)),
      _mm512_srli_epi32(_mm512_castps_si512(high), 16));
  return _mm512_or_si512(both, shifted);
}

// Write the inputs of one step (B, F) after the hidden units in its words.
static inline void pack_inputs(const Plan& plan, const float* x, uint32_t* step) {
  for (int64_t row = 0; row < plan.B; row++, x += plan.F) {
    uint32_t* to = step + (row / 32) * 2 * plan.depth * TILE;
    for (int64_t k = 0; k < plan.x_tiles; k++) {
      const int64_t left = plan.F - 32 * k;
      const words all = plan.exact ? split_inputs(x, plan.F)
                                   : pair_of(load_first(x + 32 * k, left),
                                             left > 16 ? load_first(x + 32 * k + 16, left - 16)
                                                       : _mm512_setzero_ps());
      _mm512_storeu_si512(to + plan.row_at(row % 32, plan.depth, plan.pairs + k), all);
    }
  }
}

// Set absent rows of a block of 32 to zero, because they are multiplied too.
static inline void clear_missing_rows(const Plan& plan, uint32_t* step) {
  if (plan.B % 32 == 0) return;
  uint32_t* last = step + (plan.blocks - 1) * 2 * plan.depth * TILE;
  for (int64_t row = plan.rows_of(plan.blocks - 1); row < 32; row++)
    for (int64_t k = 0; k < plan.depth; k++)
      std::memset(last + plan.row_at(row, plan.depth, k), 0, 64);
}

// 16 weights of row ``row`` of the kernel to a gate, from unit ``unit`` on; zero beyond the end. The
// cell maps a column of tiles to a gate of the kernel, -1 for none.
template <class Cell>
INLINE vec weights_to(const Plan& plan, const float* kernel, int64_t row, bool input, int column,
                      int64_t unit) {
  const int gate = Cell::gate_of(column, input);
  const int64_t end = input ? plan.F : plan.F + plan.H;
  if (gate < 0 || row >= end) return _mm512_setzero_ps();
  return load_first(kernel + (row * Cell::gates + gate) * plan.H + unit, plan.H - unit);
}

// Pack weights for the forward pass, (unit block, 4, depth) tiles, and biases, (unit block, 4, 16).
// They are scaled so that each gate's activation begins with a tanh.
template <class Cell>
static void pack_weights(const Plan& plan, const Weights& weights, uint32_t* packed, float* biases) {
  for (int64_t unit = 0; unit < plan.H; unit += 16)
    for (int column = 0; column < 4; column++, biases += 16) {
      const vec scale = _mm512_set1_ps(Cell::scale(column));
      auto of = [&](int64_t row, bool input) {
        return _mm512_mul_ps(
            scale, weights_to<Cell>(plan, weights.kernel, row, input, column, unit));
      };
      for (int64_t p = 0; p < plan.pairs; p++)
        for (int64_t j = 0; j < 16; j++, packed += 16) {
          const int64_t row = plan.F + 32 * p + j, apart = plan.apart(p);
          const words both = pair_of(of(row, false), of(row + apart, false));
          _mm512_storeu_si512(packed, j < apart ? both : _mm512_setzero_si512());
        }
      for (int64_t k = 0; k < plan.x_tiles; k++)
        for (int64_t j = 0; j < 16; j++, packed += 16) {
          const int64_t row = 32 * k + j;
          if (!plan.exact) {
            _mm512_storeu_si512(packed, pair_of(of(row, true), of(row + 16, true)));
            continue;
          }
          const vec all = of(row < plan.F ? row : row - plan.F, true);
          const vec high = rounded_to_half(all), low = _mm512_sub_ps(all, high);
          const vec none = _mm512_setzero_ps();
          _mm512_storeu_si512(packed, row < plan.F ? pair_of(high, high) : pair_of(low, none));
        }
      const float* bias = Cell::bias_of(weights, column, plan.H) + unit;
      _mm512_storeu_ps(biases, _mm512_mul_ps(scale, load_first(bias, plan.H - unit)));
    }
}

// Pack weights for the backward pass: ``count`` rows of the kernel from ``first`` on, transposed, as
// (block of 16 rows, unit block, 2) tiles whose words hold the weights to gates 0 and 1, or 2 and 3.
template <class Cell>
static void pack_back(const Plan& plan, const float* kernel, int64_t first, int64_t count, bool input,
                      uint32_t* packed) {
  for (int64_t row = 0; row < count; row += 16)
    for (int64_t unit = 0; unit < plan.H; unit += 16)
      for (int column = 0; column < 4; column += 2, packed += TILE) {
        words all[16];
        for (int64_t n = 0; n < 16; n++) {
          const int64_t from = first + row + n;
          all[n] = pair_of(weights_to<Cell>(plan, kernel, from, input, column, unit),
                           weights_to<Cell>(plan, kernel, from, input, column + 1, unit));
        }
        transpose(all);
        for (int64_t j = 0; j < 16; j++) _mm512_storeu_si512(packed + j * 16, all[j]);
      }
}

// Unpack the gradients of the weights from tiles (depth, lower and upper half, unit block, 4).
template <class Cell>
static void unpack_gradients(const Plan& plan, const float* sums, float* kernel) {
  auto row_of = [&](int64_t k, int64_t half, int64_t j) {
    return sums + (k * 2 + half) * 4 * plan.units * TILE + j * 16;
  };
  for (int64_t row = 0; row < plan.F + plan.H; row++, kernel += Cell::gates * plan.H) {
    const bool input = row < plan.F;
    const int64_t n = input ? row : row - plan.F;
    const int64_t k = n / 32 + (input ? plan.pairs : 0), apart = input ? 16 : plan.apart(n / 32);
    const float* from = row_of(k, n % 32 / apart, n % apart);
    const float* rest = input && plan.exact ? row_of(k, 1, n) : nullptr;
    for (int64_t unit = 0; unit < plan.units; unit++)
      for (int column = 0; column < 4; column++) {
        const int gate = Cell::gate_of(column, input);
        if (gate < 0) continue;
        const int64_t at = (unit * 4 + column) * TILE;
        vec sum = _mm512_loadu_ps(from + at);
        if (rest) sum = _mm512_add_ps(sum, _mm512_loadu_ps(rest + at));
        store_first(kernel + gate * plan.H + unit * 16, sum, plan.H - unit * 16);
      }
  }
}

}  // namespace ISA_NAME

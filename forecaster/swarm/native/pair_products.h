// Products of tiles by AVX-512 BF16 (VDPBF16PS), which adds two products to a float32 at once: twice
// the products of a float32 instruction, in the same time on AMD's processors. C stays in registers,
// and unused rows and words are skipped.
#pragma once
#include <immintrin.h>

#include "tile_grids.h"

namespace ISA_NAME {

static constexpr bool HALVES_BLOCKS = true;  // half the words for the same numbers

class TilesInUse {
 public:
  TilesInUse() {}  // nothing to set up
};

// Compute ROWS rows, which need not be adjacent, and COLUMNS columns of tiles.
template <int ROWS, int COLUMNS, Start START>
INLINE void pair_block(const uint32_t* const* rows, float* const* out, TileGrid a, TileGrid b,
                       Depth depth, int64_t column, const float* row) {
  const uint32_t* left[ROWS];
  for (int r = 0; r < ROWS; r++) left[r] = rows[r];
  __m512 sum[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < COLUMNS; j++) {
      if constexpr (START == Start::zero) sum[r][j] = _mm512_setzero_ps();
      if constexpr (START == Start::out) sum[r][j] = _mm512_loadu_ps(out[r] + j * column);
      if constexpr (START == Start::row) sum[r][j] = _mm512_loadu_ps(row + j * 16);
    }
  for (int64_t k = 0; k < depth.tiles; k++) {
    const int64_t after = depth.tiles - 1 - k;
    const int64_t count = after > 1 ? 16 : after ? depth.last_but_one : depth.last;
    const uint32_t* right = b.at + k * b.inner;
    // Two words at a time; the words after the last are zero.
    for (int64_t at = k * a.inner, end = at + count; at < end; at += 2, right += 32)
#pragma GCC unroll 2
      for (int word = 0; word < 2; word++) {
        __m512bh w[COLUMNS];
        for (int j = 0; j < COLUMNS; j++)
          w[j] = (__m512bh)_mm512_loadu_si512(right + word * 16 + j * b.outer);
        for (int r = 0; r < ROWS; r++) {
          const __m512bh x = (__m512bh)_mm512_set1_epi32(left[r][at + word]);
          for (int j = 0; j < COLUMNS; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], x, w[j]);
        }
      }
  }
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < COLUMNS; j++) _mm512_storeu_ps(out[r] + j * column, sum[r][j]);
}

// Compute ``rows`` of C for any number of columns of tiles, in blocks whose sums fit 32 registers.
template <Start START>
static void tile_products(TileRows rows, int64_t columns, TileGrid a, TileGrid b, Depth depth,
                          OutGrid c, const float* row = nullptr) {
  const uint32_t* left[32];
  const int64_t count = rows.first + rows.second;
  for (int64_t r = 0; r < rows.first; r++) left[r] = a.at + r * 16;
  for (int64_t r = 0; r < rows.second; r++) left[rows.first + r] = a.at + a.outer + r * 16;
  for (int64_t j = 0; j < columns; j += 4) {
    float* out[32];
    float* from = c.at + j * c.column;
    for (int64_t r = 0; r < rows.first; r++) out[r] = from + r * 16;
    for (int64_t r = 0; r < rows.second; r++) out[rows.first + r] = from + c.row + r * 16;
    with_count<4>(std::min<int64_t>(4, columns - j), [&](auto n) {
      constexpr int COLUMNS = decltype(n)::value;
      in_tiles<COLUMNS == 4 ? 6 : COLUMNS == 1 ? 16 : 8>(count, [&](int64_t r, auto rows) {
        pair_block<decltype(rows)::value, COLUMNS, START>(
            left + r, out + r, a, {b.at + j * b.outer, b.outer, b.inner}, depth, c.column,
            START == Start::row ? row + j * 16 : nullptr);
      });
    });
  }
}

}  // namespace ISA_NAME

// Matrix units: products of tiles of bfloat16 pairs with float32 sums (AMX, TDPBF16PS).
// With -DEMULATED_TILES, AVX-512 computes the same bits, except that matrix units take numbers below
// 1e-38 for zero.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "tile_grids.h"

namespace ISA_NAME {

static constexpr bool HALVES_BLOCKS = false;  // a partly filled tile takes as long as a full one

#if defined(EMULATED_TILES)

struct Tiles {
  alignas(64) float at[8][16][16];
};
static thread_local Tiles tiles;
class TilesInUse {};

template <int N>
INLINE void tile_zero() {
  std::memset(tiles.at[N], 0, sizeof tiles.at[N]);
}
template <int N>
INLINE void tile_load(const void* from, int64_t stride) {
  for (int row = 0; row < 16; row++)
    std::memcpy(tiles.at[N][row], static_cast<const char*>(from) + row * stride, 64);
}
template <int N>
INLINE void tile_store(void* to) {
  std::memcpy(to, tiles.at[N], sizeof tiles.at[N]);
}

INLINE __m512 lower(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
INLINE __m512 upper(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xffff0000)));
}

template <int C, int A, int B>
static void tile_product() {
  constexpr int rows = 8;
  for (int first = 0; first < 16; first += rows) {
    __m512 low[rows], high[rows];
    for (int r = 0; r < rows; r++) low[r] = high[r] = _mm512_setzero_ps();
    for (int k = 0; k < 16; k++) {
      const __m512i b = _mm512_loadu_si512(tiles.at[B][k]);
      for (int r = 0; r < rows; r++) {
        int32_t word;
        std::memcpy(&word, &tiles.at[A][first + r][k], 4);
        const __m512i a = _mm512_set1_epi32(word);
        low[r] = _mm512_fmadd_ps(lower(a), lower(b), low[r]);
        high[r] = _mm512_fmadd_ps(upper(a), upper(b), high[r]);
      }
    }
    for (int r = 0; r < rows; r++) {
      float* to = tiles.at[C][first + r];
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_add_ps(low[r], high[r])));
    }
  }
}

#else

// Assembly, because GCC's intrinsics do not declare that they read and write memory.
class TilesInUse {
 public:
  TilesInUse() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  }
  ~TilesInUse() { asm volatile("tilerelease" ::: "memory"); }
  TilesInUse(const TilesInUse&) = delete;
};

template <int N>
INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(N));
}
template <int N>
INLINE void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(N) : "memory");
}
template <int N>
INLINE void tile_store(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(int64_t(64)), "i"(N) : "memory");
}
template <int C, int A, int B>
INLINE void tile_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

#endif

template <int N, Start START>
INLINE void start_tile(const OutGrid& c, const float* row, int i, int j) {
  if constexpr (START == Start::zero) tile_zero<N>();
  if constexpr (START == Start::out) tile_load<N>(c.at + i * c.row + j * c.column, 64);
  if constexpr (START == Start::row) tile_load<N>(row + j * 16, 0);
}

// Compute ROWS x COLUMNS tiles of C from K tiles each of A and B; four products share four loads.
template <int ROWS, int COLUMNS, Start START>
static void tile_block(TileGrid a, TileGrid b, int64_t K, OutGrid c, const float* row) {
  start_tile<0, START>(c, row, 0, 0);
  if constexpr (COLUMNS > 1) start_tile<1, START>(c, row, 0, 1);
  if constexpr (ROWS > 1) start_tile<2, START>(c, row, 1, 0);
  if constexpr (ROWS > 1 && COLUMNS > 1) start_tile<3, START>(c, row, 1, 1);
  for (int64_t k = 0; k < K; k++) {
    tile_load<4>(a.at + k * a.inner, 64);
    tile_load<6>(b.at + k * b.inner, 64);
    tile_product<0, 4, 6>();
    if constexpr (COLUMNS > 1) tile_load<7>(b.at + b.outer + k * b.inner, 64);
    if constexpr (COLUMNS > 1) tile_product<1, 4, 7>();
    if constexpr (ROWS > 1) tile_load<5>(a.at + a.outer + k * a.inner, 64);
    if constexpr (ROWS > 1) tile_product<2, 5, 6>();
    if constexpr (ROWS > 1 && COLUMNS > 1) tile_product<3, 5, 7>();
  }
  tile_store<0>(c.at);
  if constexpr (COLUMNS > 1) tile_store<1>(c.at + c.column);
  if constexpr (ROWS > 1) tile_store<2>(c.at + c.row);
  if constexpr (ROWS > 1 && COLUMNS > 1) tile_store<3>(c.at + c.row + c.column);
}

// Compute one or two rows of tiles and any number of columns, always in whole tiles.
template <Start START>
static void tile_products(TileRows tile_rows, int64_t columns, TileGrid a, TileGrid b, Depth depth,
                          OutGrid c, const float* row = nullptr) {
  const int64_t rows = tile_rows.second ? 2 : 1, K = depth.tiles;
  for (int64_t j = 0; j < columns; j += 2) {
    const TileGrid right = {b.at + j * b.outer, b.outer, b.inner};
    const OutGrid out = {c.at + j * c.column, c.row, c.column};
    const float* from = START == Start::row ? row + j * 16 : nullptr;
    if (rows > 1 && j + 1 < columns)
      tile_block<2, 2, START>(a, right, K, out, from);
    else if (rows > 1)
      tile_block<2, 1, START>(a, right, K, out, from);
    else if (j + 1 < columns)
      tile_block<1, 2, START>(a, right, K, out, from);
    else
      tile_block<1, 1, START>(a, right, K, out, from);
  }
}

}  // namespace ISA_NAME

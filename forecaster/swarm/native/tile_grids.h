// How matrices of pairs of bfloat16 are laid out in tiles, for whatever multiplies them.
//
// A tile has 16 rows of 64 bytes. Of C += A B, C holds 16 x 16 floats; a word of A or B holds two
// numbers that belong together: A[m][k] and B[k][n] meet in C[m][n] by their lower halves and by
// their upper ones.
#pragma once
#include <cstdint>

#include "vectors.h"

namespace ISA_NAME {

static constexpr int64_t TILE = 256;  // words in a tile

// Tiles (i, k) of A, or (j, k) of B, at ``at + i * outer + k * inner``, in words.
struct TileGrid {
  const uint32_t* at;
  int64_t outer, inner;
};
// Tiles (i, j) of C, in floats.
struct OutGrid {
  float* at;
  int64_t row, column;
};
// What C starts from: nothing, C itself, or a row of 16 floats for each column of tiles.
enum class Start { zero, out, row };
// How many rows of the first and of the second row of tiles are asked for.
struct TileRows {
  int64_t first, second;
};
// How many tiles a product sums over, and how many words of a row of the last one, and of the one
// before it, it needs.
struct Depth {
  int64_t tiles, last = 16, last_but_one = 16;
};

}  // namespace ISA_NAME

// Layout of matrices of bfloat16 pairs in tiles, for matrix units and for AVX-512 BF16.
//
// A tile has 16 rows of 64 bytes. In C += A B, a tile of C holds 16 x 16 floats, and a word of A or B
// holds a pair of numbers: C[m][n] sums the products of the lower halves of A[m][k] and B[k][n], and
// those of their upper halves.
#pragma once
#include <cstdint>

#include "vectors.h"

namespace ISA_NAME {

static constexpr int64_t TILE = 256;  // words in a tile

// Tile (i, k) of A, or (j, k) of B, is at ``at + i * outer + k * inner``, in words.
struct TileGrid {
  const uint32_t* at;
  int64_t outer, inner;
};
// Tile (i, j) of C is at ``at + i * row + j * column``, in floats.
struct OutGrid {
  float* at;
  int64_t row, column;
};
// Initial value of C: zero, C itself, or a row of 16 floats for each column of tiles.
enum class Start { zero, out, row };
// The number of rows to compute in the first and in the second row of tiles.
struct TileRows {
  int64_t first, second;
};
// The number of tiles that a product sums over, and of used words per row in the last tile and in the
// one before it.
struct Depth {
  int64_t tiles, last = 16, last_but_one = 16;
};

}  // namespace ISA_NAME

// AVX-512 functions of the bfloat16 kernels: rounding, activations, transposition.
#pragma once
#include <immintrin.h>

#include "tanh_table.h"
#include "vectors.h"

namespace ISA_NAME {

typedef __m512 vec;
typedef __m512i words;  // 16 pairs of bfloat16

INLINE __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1;
}
INLINE vec load_first(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
INLINE void store_first(float* to, vec x, int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), x);
}

// Round both to bfloat16 and pack them, the first in the lower half of a word. The processor's own
// conversion takes twice as long, and not all processors have it.
INLINE words pair_of(vec low, vec high) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i a = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
  const __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half);
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32(0xffff0000), 0xf8);  // a | (b & c)
}
// Round x to bfloat16, as a float.
INLINE vec rounded_to_half(vec x) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0xffff0000)));
}

// tanh by a table of polynomials; NaN stays NaN.
INLINE vec table_tanh(vec x) {
  const vec sign = _mm512_set1_ps(-0.0f);
  const vec most = _mm512_set1_ps(31.49f / TANH_SCALE), scale = _mm512_set1_ps(TANH_SCALE);
  const vec a = _mm512_min_ps(most, _mm512_andnot_ps(sign, x));
  // Adding 1.5 x 2^23 leaves the rounded product in the lowest bits.
  const __m512i segment =
      _mm512_castps_si512(_mm512_fmadd_ps(a, scale, _mm512_set1_ps(12582912.0f)));
  auto coefficient = [&](int power) {
    return _mm512_permutex2var_ps(_mm512_load_ps(TANH_TABLE[power]), segment,
                                  _mm512_load_ps(TANH_TABLE[power] + 16));
  };
  vec y = coefficient(TANH_DEGREE);
  for (int power = TANH_DEGREE - 1; power >= 0; power--) y = _mm512_fmadd_ps(y, a, coefficient(power));
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_castps_si512(y), _mm512_castps_si512(x), _mm512_castps_si512(sign), 0xf8));
}
// sigmoid(2 x).
INLINE vec sigmoid_of_double(vec x) {
  const vec half = _mm512_set1_ps(0.5f);
  return _mm512_fmadd_ps(half, table_tanh(x), half);
}

INLINE void store_half(uint16_t* to, vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vec load_half(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// Transpose 16 x 16 words.
INLINE void transpose(words (&x)[16]) {
  words y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
      x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; j++) {
      y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0x88);
      y[i + 4 + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0xdd);
    }
  for (int j = 0; j < 8; j++) {
    x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
  }
}

// Transpose 32 rows of words, each a pair of numbers, into two tiles whose words pair rows:
// lower[column][r] = lower halves of rows 2 r and 2 r + 1; the second tile has their upper halves.
static inline void transpose_pairs(const uint32_t* top, const uint32_t* bottom, uint32_t* out) {
  words even[16], odd[16];
  for (int r = 0; r < 16; r++) {
    const uint32_t* from = (r < 8 ? top : bottom) + (2 * r % 16) * 16;
    even[r] = _mm512_loadu_si512(from);
    odd[r] = _mm512_loadu_si512(from + 16);
  }
  transpose(even);
  transpose(odd);
  const __m512i low = _mm512_set1_epi32(0xffff);
  for (int column = 0; column < 16; column++) {
    const words a = even[column], b = odd[column];
    // (a & low) | (b << 16), and (a >> 16) | (b & ~low)
    _mm512_storeu_si512(out + column * 16,
                        _mm512_ternarylogic_epi32(low, a, _mm512_slli_epi32(b, 16), 0xea));
    _mm512_storeu_si512(out + 256 + column * 16,
                        _mm512_ternarylogic_epi32(low, b, _mm512_srli_epi32(a, 16), 0xae));
  }
}

}  // namespace ISA_NAME

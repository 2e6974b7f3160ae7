// Vectors of V floats, activations and matrix products for both recurrences.
//
// Compiled once for each instruction set (see isa.cc). Arrays are row-major.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <cstdlib>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels.h"

// GCC does not inline functions that are called often, and a call spills every vector register.
#define INLINE __attribute__((always_inline)) static inline

namespace ISA_NAME {

template <int V>
struct Lanes {
  typedef float vec __attribute__((vector_size(4 * V), aligned(4)));
  typedef int32_t mask __attribute__((vector_size(4 * V), aligned(4)));
};

template <class X>
INLINE X load(const float* from) {
  X x;
  std::memcpy(&x, from, sizeof(X));
  return x;
}
template <class X>
INLINE void store(float* to, X x) {
  std::memcpy(to, &x, sizeof(X));
}

// 1 / x to within 2 ulp, unless x is tiny, huge or zero: refines the processor's estimate, because a
// division takes as long as a dozen products.
template <class X>
INLINE X inverse_of(X x) {
#ifdef __AVX512F__
  if constexpr (sizeof(X) == 64) {
    const X near = (X)_mm512_rcp14_ps((__m512)x);
    return near * (2.0f - x * near);
  }
#endif
#ifdef __AVX2__
  if constexpr (sizeof(X) == 32) {
    X near = (X)_mm256_rcp_ps((__m256)x);
    near = near * (2.0f - x * near);
    return near * (2.0f - x * near);
  }
#endif
  return 1.0f / x;
}

// Clamp x to [-most, most]. NaN stays NaN: both instructions then return their second operand.
template <class X>
INLINE X clamped(X x, X most) {
#ifdef __AVX512F__
  if constexpr (sizeof(X) == 64)
    return (X)_mm512_max_ps((__m512)-most, _mm512_min_ps((__m512)most, (__m512)x));
#endif
#ifdef __AVX2__
  if constexpr (sizeof(X) == 32)
    return (X)_mm256_max_ps((__m256)-most, _mm256_min_ps((__m256)most, (__m256)x));
#endif
  x = x > most ? most : x;
  return x < -most ? -most : x;
}

// tanh(x) = x P(x^2) / Q(x^2), fitted for the smallest relative error on [-9, 9], beyond which tanh
// is 1 in float32. In float32 arithmetic the relative error is below 4e-7.
template <class X>
INLINE X tanh_of(X x) {
  x = clamped(x, X{} + 9.0f);
  const X s = x * x;
  X p = s * 1.33546988e-08f + 2.06091151e-05f;
  p = p * s + 3.49559036e-03f;
  p = p * s + 1.33810276e-01f;
  p = p * s + 9.99999979e-01f;
  X q = s * 7.77657532e-07f + 3.28563830e-04f;
  q = q * s + 2.58769909e-02f;
  q = q * s + 4.67143432e-01f;
  q = q * s + 1.0f;
  return x * p * inverse_of(q);
}
template <class X>
INLINE X sigmoid_of(X x) {
  return 0.5f * tanh_of(0.5f * x) + 0.5f;
}

// Scratch memory of one thread, grown as needed and kept.
static inline float* scratch(int slot, size_t size) {
  // No standard container: its code would be shared by files of all instruction sets.
  struct Room {
    float* data = nullptr;
    size_t size = 0;
    ~Room() { std::free(data); }
  };
  static thread_local Room rooms[12];
  Room& room = rooms[slot];
  if (room.size < size + 16) {
    std::free(room.data);
    room.data = static_cast<float*>(std::malloc((size + 32) * sizeof(float)));
    if (!room.data) std::abort();
    room.size = size + 16;
  }
  auto address = reinterpret_cast<uintptr_t>(room.data);
  return reinterpret_cast<float*>((address + 63) & ~uintptr_t(63));
}
static inline float* zeros(int slot, size_t size) {
  float* room = scratch(slot, size);
  std::fill(room, room + size, 0.0f);
  return room;
}

static inline int64_t rounded(int64_t n, int64_t v) { return (n + v - 1) / v * v; }

// Load up to V floats as one vector, zero beyond.
template <int V>
INLINE typename Lanes<V>::vec load_some(const float* from, int64_t left) {
  typedef typename Lanes<V>::vec vec;
  if (left >= V) return load<vec>(from);
  float all[V] = {};
  for (int64_t k = 0; k < left; k++) all[k] = from[k];
  return load<vec>(all);
}
template <int V>
INLINE void store_some(float* to, typename Lanes<V>::vec x, int64_t left) {
  if (left >= V) return store(to, x);
  float all[V];
  store(all, x);
  for (int64_t k = 0; k < left; k++) to[k] = all[k];
}

// The incoming gradient of step t, from that of all steps (T, B, H) or of the last only (B, H).
static inline const float* gradient_at(const Sizes& n, int64_t t, const Gradients& grad) {
  if (!grad.last_only) return grad.hidden + t * n.B * n.H;
  return t == n.T - 1 ? grad.hidden : nullptr;
}

// Call f(count) with ``count``, from 1 to MOST, as a compile-time constant.
template <int MOST, class F>
INLINE void with_count(int64_t count, F f) {
  if (count == MOST)
    f(std::integral_constant<int, MOST>());
  else if constexpr (MOST > 1)
    with_count<MOST - 1>(count, f);
}

// Call f(first row, count) for tiles of at most MOST rows, of equal size up to one row.
template <int MOST, class F>
INLINE void in_tiles(int64_t rows, F f) {
  const int64_t parts = (rows + MOST - 1) / MOST;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t r = part * rows / parts;
    with_count<MOST>((part + 1) * rows / parts - r, [&](auto count) { f(r, count); });
  }
}

// Matrices of a product; element (r, k) of the left one is at[r * row + k * step].
struct Left {
  const float* at;
  int64_t row, step;
};
struct Right {
  const float* at;
  int64_t row;
};
struct Out {
  float* at;
  int64_t row;
};

template <int V, int ROWS, int NV>
INLINE void product_tile(Left a, Right b, int64_t K, Out out, bool add) {
  typedef typename Lanes<V>::vec vec;
  vec acc[ROWS][NV];
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < NV; v++) acc[r][v] = add ? load<vec>(out.at + r * out.row + v * V) : vec{};
  for (int64_t k = 0; k < K; k++) {
    vec w[NV];
    for (int v = 0; v < NV; v++) w[v] = load<vec>(b.at + k * b.row + v * V);
    for (int r = 0; r < ROWS; r++) {
      const float s = a.at[r * a.row + k * a.step];
      for (int v = 0; v < NV; v++) acc[r][v] += s * w[v];
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < NV; v++) store(out.at + r * out.row + v * V, acc[r][v]);
}

template <int V, int NV>
static void product_columns(int64_t rows, Left a, Right b, int64_t K, Out out, bool add) {
  constexpr int most = MOST_ROWS * 4 / NV > 8 ? 8 : MOST_ROWS * 4 / NV;  // as fits the registers
  in_tiles<most>(rows, [&](int64_t r, auto count) {
    product_tile<V, decltype(count)::value, NV>({a.at + r * a.row, a.row, a.step}, b, K,
                                                {out.at + r * out.row, out.row}, add);
  });
}

// out (rows, columns) += or = a (rows, K) b (K, columns); columns are whole vectors.
template <int V>
static void product(int64_t rows, int64_t columns, int64_t K, Left a, Right b, Out out, bool add) {
  int64_t v = 0;
  for (; v + 4 <= columns / V; v += 4)
    product_columns<V, 4>(rows, a, {b.at + v * V, b.row}, K, {out.at + v * V, out.row}, add);
  with_count<3>(columns / V - v, [&](auto left) {
    product_columns<V, decltype(left)::value>(rows, a, {b.at + v * V, b.row}, K,
                                              {out.at + v * V, out.row}, add);
  });
}

// Transpose weights (rows, gates H): those of a gate's unit go to row row_of(gate, unit) of out, which
// has ``count`` rows of ``width``. The rest is zero.
template <class RowOf>
static void transposed(const float* kernel, int64_t rows, int64_t gates, int64_t H, int64_t count,
                       int64_t width, RowOf row_of, float* out) {
  std::fill(out, out + count * width, 0.0f);
  for (int64_t g = 0; g < gates; g++)
    for (int64_t unit = 0; unit < H; unit++) {
      float* row = out + row_of(g, unit) * width;
      for (int64_t k = 0; k < rows; k++) row[k] = kernel[k * gates * H + g * H + unit];
    }
}

}  // namespace ISA_NAME

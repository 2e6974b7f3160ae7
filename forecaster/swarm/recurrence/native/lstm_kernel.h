// The LSTM recurrence of one model over all time steps, forward and backward.
//
// Compiled once for each instruction set (see lstm_isa.cc); V floats make a vector, and a tile of
// ROWS rows x 4 vectors stays in registers. In the forward pass the four vectors are the four gates
// of the same V hidden units, so that gates are activated before they ever leave the registers.
//
// Arrays are row-major. T steps, B rows (batch), F inputs, H hidden units; Hp is H rounded up to
// whole vectors. Weights as in lstm.py: (F + H, 4H), gates in the order input, forget, cell, output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// GCC leaves functions that are called often out of line, and a call spills every vector register.
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

// 1 / x to within 2 ulp for x not tiny, huge or zero: a division takes as long as a dozen products,
// so the estimate that the processor has is refined instead.
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

// x between -most and most; NaN stays NaN: both instructions return their second operand then.
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
// is 1 in float32; off by less than 4e-7 of its value in float32 arithmetic.
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

// Scratch of one thread, grown as needed and kept.
static inline float* scratch(int slot, size_t size) {
  static thread_local std::vector<float> rooms[8];
  if (rooms[slot].size() < size + 16) rooms[slot].resize(size + 16);
  auto address = reinterpret_cast<uintptr_t>(rooms[slot].data());
  return reinterpret_cast<float*>((address + 63) & ~uintptr_t(63));
}

struct Sizes {
  int64_t T, B, F, H;
};

static inline int64_t rounded(int64_t n, int64_t v) { return (n + v - 1) / v * v; }

// Up to V floats as one vector, zero beyond.
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

// Gates of ROWS rows and V units, one step: acc[row][gate] = bias + x Wx + h Wh.
template <int V, int ROWS>
INLINE void gates_of(typename Lanes<V>::vec (&acc)[ROWS][4], const float* packed, const float* bias,
                     const float* x, int64_t F, const float* h, int64_t H) {
  typedef typename Lanes<V>::vec vec;
  for (int g = 0; g < 4; g++) {
    const vec b = load<vec>(bias + g * V);
    for (int r = 0; r < ROWS; r++) acc[r][g] = b;
  }
  for (int64_t k = 0; k < F; k++, packed += 4 * V)
    for (int g = 0; g < 4; g++) {
      const vec w = load<vec>(packed + g * V);
      for (int r = 0; r < ROWS; r++) acc[r][g] += x[r * F + k] * w;
    }
  if (!h) return;
  for (int64_t k = 0; k < H; k++, packed += 4 * V) {
    const vec w0 = load<vec>(packed), w1 = load<vec>(packed + V);
    const vec w2 = load<vec>(packed + 2 * V), w3 = load<vec>(packed + 3 * V);
    for (int r = 0; r < ROWS; r++) {
      const float s = h[r * H + k];
      acc[r][0] += s * w0;
      acc[r][1] += s * w1;
      acc[r][2] += s * w2;
      acc[r][3] += s * w3;
    }
  }
}

template <int V, int ROWS>
static void forward_rows(const Sizes& n, int64_t unit, const float* packed, const float* bias,
                         const float* x, const float* valid, const float* h_before,
                         const float* c_before, float* h, float* c, float* gates) {
  typedef typename Lanes<V>::vec vec;
  const int64_t left = n.H - unit;
  vec acc[ROWS][4];
  gates_of<V, ROWS>(acc, packed, bias, x, n.F, h_before, n.H);
  for (int r = 0; r < ROWS; r++) {
    const vec i = sigmoid_of(acc[r][0]), f = sigmoid_of(acc[r][1]);
    const vec g = tanh_of(acc[r][2]), o = sigmoid_of(acc[r][3]);
    const vec before = c_before ? load<vec>(c_before + r * V) : vec{};
    vec now = f * before + i * g;
    vec out = o * tanh_of(now);
    if (valid[r] != 1.0f) {
      const vec kept = h_before ? load_some<V>(h_before + r * n.H + unit, left) : vec{};
      out = kept + valid[r] * (out - kept);
      now = before + valid[r] * (now - before);
    }
    store(c + r * V, now);
    if (gates) {
      float* to = gates + r * 4 * V;
      store(to, i);
      store(to + V, f);
      store(to + 2 * V, g);
      store(to + 3 * V, o);
    }
    store_some<V>(h + r * n.H + unit, out, left);
  }
}

// Weights by blocks of V units: (block, F + H, 4, V), zero beyond H; bias likewise (block, 4, V).
template <int V>
static void pack_forward(const Sizes& n, const float* kernel, const float* bias, float* packed,
                         float* packed_bias) {
  const int64_t K = n.F + n.H;
  for (int64_t unit = 0; unit < n.H; unit += V) {
    for (int64_t k = 0; k < K; k++)
      for (int g = 0; g < 4; g++, packed += V)
        store(packed, load_some<V>(kernel + k * 4 * n.H + g * n.H + unit, n.H - unit));
    for (int g = 0; g < 4; g++, packed_bias += V)
      store(packed_bias, load_some<V>(bias + g * n.H + unit, n.H - unit));
  }
}

// hidden (T, B, H); cell (T, Hp / V, B, V) and gates (T, Hp / V, B, 4, V) are for the backward pass,
// or null.
template <int V>
static void forward(const Sizes& n, const float* kernel, const float* bias, const float* x,
                    const float* valid, float* hidden, float* cell, float* gates) {
  const int64_t K = n.F + n.H, Hp = rounded(n.H, V), blocks = Hp / V;
  float* packed = scratch(0, blocks * K * 4 * V);
  float* packed_bias = scratch(1, blocks * 4 * V);
  float* two_cells = cell ? nullptr : scratch(2, 2 * n.B * Hp);
  pack_forward<V>(n, kernel, bias, packed, packed_bias);
  for (int64_t t = 0; t < n.T; t++) {
    const float* h_before = t ? hidden + (t - 1) * n.B * n.H : nullptr;
    float* c = cell ? cell + t * n.B * Hp : two_cells + (t % 2) * n.B * Hp;
    const float* c_before =
        !t ? nullptr : cell ? cell + (t - 1) * n.B * Hp : two_cells + ((t - 1) % 2) * n.B * Hp;
    for (int64_t block = 0; block < blocks; block++) {
      const float* w = packed + block * K * 4 * V;
      const float* b = packed_bias + block * 4 * V;
      const int64_t most = MOST_ROWS, parts = (n.B + most - 1) / most;
      for (int64_t part = 0; part < parts; part++) {
        const int64_t r = part * n.B / parts, rows = (part + 1) * n.B / parts - r;
        auto run = [&](auto count) {
          forward_rows<V, decltype(count)::value>(
              n, block * V, w, b, x + (t * n.B + r) * n.F, valid + t * n.B + r,
              h_before ? h_before + r * n.H : nullptr,
              c_before ? c_before + (block * n.B + r) * V : nullptr,
              hidden + (t * n.B + r) * n.H, c + (block * n.B + r) * V,
              gates ? gates + ((t * blocks + block) * n.B + r) * 4 * V : nullptr);
        };
        switch (rows) {
          case 1: run(std::integral_constant<int, 1>()); break;
          case 2: run(std::integral_constant<int, 2>()); break;
          case 3: run(std::integral_constant<int, 3>()); break;
#if MOST_ROWS >= 6
          case 4: run(std::integral_constant<int, 4>()); break;
          case 5: run(std::integral_constant<int, 5>()); break;
          case 6: run(std::integral_constant<int, 6>()); break;
#endif
        }
      }
    }
  }
}

// out (rows, N) += or = a (rows, K) b (K, N), tiles of ROWS x NV vectors; N is whole vectors.
template <int V, int ROWS, int NV>
INLINE void product_tile(const float* a, int64_t a_row, int64_t a_step, const float* b,
                         int64_t N, int64_t K, float* out, int64_t out_row, bool add) {
  typedef typename Lanes<V>::vec vec;
  vec acc[ROWS][NV];
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < NV; v++) acc[r][v] = add ? load<vec>(out + r * out_row + v * V) : vec{};
  for (int64_t k = 0; k < K; k++) {
    vec w[NV];
    for (int v = 0; v < NV; v++) w[v] = load<vec>(b + k * N + v * V);
    for (int r = 0; r < ROWS; r++) {
      const float s = a[r * a_row + k * a_step];
      for (int v = 0; v < NV; v++) acc[r][v] += s * w[v];
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < NV; v++) store(out + r * out_row + v * V, acc[r][v]);
}

// All rows of a product in tiles whose accumulators fit the registers.
template <int V, int NV>
static void product_columns(int64_t rows, const float* a, int64_t a_row, int64_t a_step,
                            const float* b, int64_t N, int64_t K, float* out, bool add) {
  constexpr int most = MOST_ROWS * 4 / NV > 8 ? 8 : MOST_ROWS * 4 / NV;
  const int64_t parts = (rows + most - 1) / most;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t r = part * rows / parts, count = (part + 1) * rows / parts - r;
    auto run = [&](auto c) {
      product_tile<V, decltype(c)::value, NV>(a + r * a_row, a_row, a_step, b, N, K, out + r * N,
                                              N, add);
    };
    switch (count) {
      case 1: run(std::integral_constant<int, 1>()); break;
      case 2: run(std::integral_constant<int, 2>()); break;
      case 3: run(std::integral_constant<int, 3>()); break;
      case 4: run(std::integral_constant<int, most >= 4 ? 4 : 1>()); break;
      case 5: run(std::integral_constant<int, most >= 5 ? 5 : 1>()); break;
      case 6: run(std::integral_constant<int, most >= 6 ? 6 : 1>()); break;
      case 7: run(std::integral_constant<int, most >= 7 ? 7 : 1>()); break;
      case 8: run(std::integral_constant<int, most >= 8 ? 8 : 1>()); break;
    }
  }
}

template <int V>
static void product(int64_t rows, const float* a, int64_t a_row, int64_t a_step, const float* b,
                    int64_t N, int64_t K, float* out, bool add) {
  int64_t v = 0;
  for (; v + 4 <= N / V; v += 4)
    product_columns<V, 4>(rows, a, a_row, a_step, b + v * V, N, K, out + v * V, add);
  switch (N / V - v) {
    case 3: product_columns<V, 3>(rows, a, a_row, a_step, b + v * V, N, K, out + v * V, add); break;
    case 2: product_columns<V, 2>(rows, a, a_row, a_step, b + v * V, N, K, out + v * V, add); break;
    case 1: product_columns<V, 1>(rows, a, a_row, a_step, b + v * V, N, K, out + v * V, add); break;
  }
}

// One step back for V units: the gradients of their gates, and what they add to those of the bias.
// Afterwards grad_h holds what padded rows pass on unchanged; returns whether there are any.
template <int V>
__attribute__((noinline)) static bool gate_gradients(
    const Sizes& n, int64_t unit, const float* valid, const float* gates, const float* c_before,
    const float* coming, float* __restrict grad_h, float* __restrict grad_c,
    float* __restrict grad_gates, float* __restrict grad_bias) {
  typedef typename Lanes<V>::vec vec;
  const int64_t Hp = rounded(n.H, V), N = 4 * Hp, left = n.H - unit;
  vec sum_i{}, sum_f{}, sum_g{}, sum_o{};
  bool padded = false;
  for (int64_t r = 0; r < n.B; r++, gates += 4 * V, grad_gates += N, grad_h += Hp, grad_c += V) {
    const float keep = valid[r];
    const vec i = load<vec>(gates), f = load<vec>(gates + V);
    const vec g = load<vec>(gates + 2 * V), o = load<vec>(gates + 3 * V);
    const vec before = c_before ? load<vec>(c_before + r * V) : vec{};
    const vec tanh_c = tanh_of(f * before + i * g);
    vec dh = load<vec>(grad_h);
    if (coming) dh += load_some<V>(coming + r * n.H, left);
    const vec dc_coming = load<vec>(grad_c);
    const vec now = keep * dh, now_o = now * o;
    const vec dc = keep * dc_coming + now_o * (1.0f - tanh_c * tanh_c);
    const vec dc_i = dc * i, dc_f = dc * f;
    const vec di = dc_i * g * (1.0f - i), df = dc_f * before * (1.0f - f);
    const vec dg = dc_i * (1.0f - g * g), d_o = now_o * tanh_c * (1.0f - o);
    store(grad_gates, di);
    store(grad_gates + V, df);
    store(grad_gates + 2 * V, dg);
    store(grad_gates + 3 * V, d_o);
    sum_i += di;
    sum_f += df;
    sum_g += dg;
    sum_o += d_o;
    store(grad_c, dc_f + (1.0f - keep) * dc_coming);
    store(grad_h, dh - now);
    padded |= keep != 1.0f;
  }
  store(grad_bias, load<vec>(grad_bias) + sum_i);
  store(grad_bias + V, load<vec>(grad_bias + V) + sum_f);
  store(grad_bias + 2 * V, load<vec>(grad_bias + 2 * V) + sum_g);
  store(grad_bias + 3 * V, load<vec>(grad_bias + 3 * V) + sum_o);
  return padded;
}

// grad_hidden (T, B, H), or (B, H) of the last step only. grad_kernel (F + H, 4H), grad_bias (4H),
// grad_x (T, B, F) or null.
template <int V>
static void backward(const Sizes& n, const float* kernel, const float* x, const float* valid,
                     const float* hidden, const float* cell, const float* gates,
                     const float* grad_hidden, bool last_only, float* grad_kernel,
                     float* grad_bias, float* grad_x) {
  typedef typename Lanes<V>::vec vec;
  const int64_t H = n.H, B = n.B, F = n.F, Hp = rounded(H, V), N = 4 * Hp, K = F + H;
  // Gates of a unit block lie together, (block, 4, V), here as in what the forward pass saved.
  float* back = scratch(0, N * Hp);         // Wh transposed, (4 Hp, Hp)
  float* grad_h = scratch(1, B * Hp);
  float* grad_c = scratch(2, B * Hp);
  float* grad_gates = scratch(3, B * N);
  float* sums = scratch(4, (K + 1) * N);    // gradients of weights and bias
  std::fill(grad_h, grad_h + B * Hp, 0.0f);
  std::fill(grad_c, grad_c + B * Hp, 0.0f);
  std::fill(sums, sums + (K + 1) * N, 0.0f);
  for (int64_t unit = 0; unit < Hp; unit++)
    for (int g = 0; g < 4; g++) {
      float* row = back + (unit / V * 4 * V + g * V + unit % V) * Hp;
      std::fill(row, row + Hp, 0.0f);
      if (unit < H)
        for (int64_t k = 0; k < H; k++) row[k] = kernel[(F + k) * 4 * H + g * H + unit];
    }
  for (int64_t t = n.T - 1; t >= 0; t--) {
    const float* coming = !last_only       ? grad_hidden + t * B * H
                          : t == n.T - 1 ? grad_hidden
                                         : nullptr;
    bool padded = false;
    for (int64_t unit = 0; unit < Hp; unit += V)
      padded |= gate_gradients<V>(
          n, unit, valid + t * B, gates + (t * Hp + unit) * B * 4,
          t ? cell + ((t - 1) * Hp + unit) * B : nullptr, coming ? coming + unit : nullptr,
          grad_h + unit, grad_c + unit * B, grad_gates + 4 * unit, sums + K * N + 4 * unit);
    // Weights, sums over the batch.
    const float* x_now = x + t * B * F;
    product<V>(F, x_now, 1, F, grad_gates, N, B, sums, true);
    if (t) product<V>(H, hidden + (t - 1) * B * H, 1, H, grad_gates, N, B, sums + F * N, true);
    if (grad_x)
      for (int64_t r = 0; r < B; r++)
        for (int64_t k = 0; k < F; k++) {
          float sum = 0.0f;
          for (int64_t unit = 0; unit < H; unit++)
            for (int g = 0; g < 4; g++)
              sum += grad_gates[r * N + unit / V * 4 * V + g * V + unit % V] *
                     kernel[k * 4 * H + g * H + unit];
          grad_x[(t * B + r) * F + k] = sum;
        }
    if (t) product<V>(B, grad_gates, N, 1, back, Hp, N, grad_h, padded);
  }
  for (int64_t k = 0; k <= K; k++) {
    float* to = k < K ? grad_kernel + k * 4 * H : grad_bias;
    for (int64_t unit = 0; unit < H; unit++)
      for (int g = 0; g < 4; g++) to[g * H + unit] = sums[k * N + unit / V * 4 * V + g * V + unit % V];
  }
}

}  // namespace ISA_NAME

// The LSTM recurrence of one model over all time steps, forward and backward.
//
// A vector has V floats, and a tile of ROWS rows x 4 vectors stays in registers. In the forward pass
// the four vectors are the four gates of the same V hidden units, so that gates are activated in
// registers.
//
// T steps, B rows (batch), F inputs, H hidden units; Hp is H rounded up to whole vectors. Weights as
// in lstm.py: (F + H, 4H), gates in the order input, forget, cell, output.
#pragma once

#include "kernels.h"
#include "vectors.h"

namespace ISA_NAME {

// Gates of ROWS rows and V units, one step: acc[row][gate] = bias + x Wx + h Wh.
template <int V, int ROWS>
INLINE void lstm_gates(typename Lanes<V>::vec (&acc)[ROWS][4], const float* packed, const float* bias,
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
static void lstm_forward_rows(const Sizes& n, int64_t unit, const float* packed, const float* bias,
                         const float* x, const float* valid, const float* h_before,
                         const float* c_before, float* h, float* c, float* gates) {
  typedef typename Lanes<V>::vec vec;
  const int64_t left = n.H - unit;
  vec acc[ROWS][4];
  lstm_gates<V, ROWS>(acc, packed, bias, x, n.F, h_before, n.H);
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

// Pack weights by blocks of V units: (block, F + H, 4, V), zero beyond H; bias (block, 4, V).
template <int V>
static void lstm_pack(const Sizes& n, const float* kernel, const float* bias, float* packed,
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

// Forward pass: hidden (T, B, H); for the backward pass, unless null, the cell state
// (T, Hp / V, B, V) and the gates (T, Hp / V, B, 4, V).
template <int V>
static void lstm_forward(const Sizes& n, const Weights& weights, const Run& run) {
  auto [x, valid, hidden, cell, gates] = run;
  const int64_t K = n.F + n.H, Hp = rounded(n.H, V), blocks = Hp / V;
  float* packed = scratch(0, blocks * K * 4 * V);
  float* packed_bias = scratch(1, blocks * 4 * V);
  float* two_cells = cell ? nullptr : scratch(2, 2 * n.B * Hp);
  lstm_pack<V>(n, weights.kernel, weights.bias, packed, packed_bias);
  for (int64_t t = 0; t < n.T; t++) {
    const float* h_before = t ? hidden + (t - 1) * n.B * n.H : nullptr;
    float* c = cell ? cell + t * n.B * Hp : two_cells + (t % 2) * n.B * Hp;
    const float* c_before =
        !t ? nullptr : cell ? cell + (t - 1) * n.B * Hp : two_cells + ((t - 1) % 2) * n.B * Hp;
    for (int64_t block = 0; block < blocks; block++) {
      const float* w = packed + block * K * 4 * V;
      const float* b = packed_bias + block * 4 * V;
      in_tiles<MOST_ROWS>(n.B, [&](int64_t r, auto count) {
        lstm_forward_rows<V, decltype(count)::value>(
            n, block * V, w, b, x + (t * n.B + r) * n.F, valid + t * n.B + r,
            h_before ? h_before + r * n.H : nullptr,
            c_before ? c_before + (block * n.B + r) * V : nullptr,
            hidden + (t * n.B + r) * n.H, c + (block * n.B + r) * V,
            gates ? gates + ((t * blocks + block) * n.B + r) * 4 * V : nullptr);
      });
    }
  }
}

// One backward step for V units: compute the gradients of their gates and add them to that of the
// bias. Afterwards grad_h holds the gradient of padded rows, which pass it on unchanged; returns
// whether there are any.
template <int V>
__attribute__((noinline)) static bool lstm_gate_gradients(
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

// Backward pass. ``run``: saved by the forward pass. Gradients have the shapes of their arrays.
template <int V>
static void lstm_backward(const Sizes& n, const Weights& weights, const Run& run,
                          const Gradients& grad) {
  auto [x, valid, hidden, cell, gates] = run;
  const int64_t H = n.H, B = n.B, F = n.F, Hp = rounded(H, V), Fp = rounded(F, V), N = 4 * Hp;
  const int64_t K = F + H;
  // Gates of a unit block lie together, (block, 4, V), as in the saved arrays.
  auto row_of = [](int64_t g, int64_t unit) { return unit / V * 4 * V + g * V + unit % V; };
  float* back = scratch(0, N * Hp);      // transposed weights of the hidden state, (4 Hp, Hp)
  float* back_x = scratch(1, N * Fp);    // and of the inputs, (4 Hp, Fp)
  float* grad_h = zeros(2, B * Hp);
  float* grad_c = zeros(3, B * Hp);
  float* grad_gates = scratch(4, B * N);
  float* sums = zeros(5, (K + 1) * N);   // gradients of weights and bias
  float* grad_inputs = scratch(6, B * Fp);
  transposed(weights.kernel + F * 4 * H, H, 4, H, N, Hp, row_of, back);
  if (grad.x) transposed(weights.kernel, F, 4, H, N, Fp, row_of, back_x);
  for (int64_t t = n.T - 1; t >= 0; t--) {
    const float* coming = gradient_at(n, t, grad);
    bool padded = false;
    for (int64_t unit = 0; unit < Hp; unit += V)
      padded |= lstm_gate_gradients<V>(
          n, unit, valid + t * B, gates + (t * Hp + unit) * B * 4,
          t ? cell + ((t - 1) * Hp + unit) * B : nullptr, coming ? coming + unit : nullptr,
          grad_h + unit, grad_c + unit * B, grad_gates + 4 * unit, sums + K * N + 4 * unit);
    // Gradients of the weights: sums over the batch.
    product<V>(F, N, B, {x + t * B * F, 1, F}, {grad_gates, N}, {sums, N}, true);
    if (grad.x) {
      product<V>(B, Fp, N, {grad_gates, N, 1}, {back_x, Fp}, {grad_inputs, Fp}, false);
      for (int64_t r = 0; r < B; r++)
        std::copy_n(grad_inputs + r * Fp, F, grad.x + (t * B + r) * F);
    }
    if (!t) break;
    const float* before = hidden + (t - 1) * B * H;
    product<V>(H, N, B, {before, 1, H}, {grad_gates, N}, {sums + F * N, N}, true);
    product<V>(B, Hp, N, {grad_gates, N, 1}, {back, Hp}, {grad_h, Hp}, padded);
  }
  for (int64_t k = 0; k <= K; k++) {
    float* to = k < K ? grad.kernel + k * 4 * H : grad.bias;
    for (int64_t unit = 0; unit < H; unit++)
      for (int g = 0; g < 4; g++) to[g * H + unit] = sums[k * N + row_of(g, unit)];
  }
}

}  // namespace ISA_NAME

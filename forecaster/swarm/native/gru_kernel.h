// The GRU recurrence of one model over all time steps, forward and backward; see lstm_kernel.h.
//
// The reset gate acts after the recurrent product, so the four vectors of a tile are the reset gate,
// the update gate, and the new gate's parts from the inputs and from the hidden state.
// Weights as in gru.py: (F + H, 3H), gates in the order reset, update, new.
#pragma once

#include "kernels.h"
#include "vectors.h"

namespace ISA_NAME {

// acc[row] = reset, update, new from inputs, new from the hidden state; before activation.
template <int V, int ROWS>
INLINE void gru_gates(typename Lanes<V>::vec (&acc)[ROWS][4], const float* packed,
                      const float* bias, const float* x, int64_t F, const float* h, int64_t H) {
  typedef typename Lanes<V>::vec vec;
  for (int g = 0; g < 4; g++) {
    const vec b = load<vec>(bias + g * V);
    for (int r = 0; r < ROWS; r++) acc[r][g] = b;
  }
  for (int64_t k = 0; k < F; k++, packed += 3 * V)
    for (int g = 0; g < 3; g++) {
      const vec w = load<vec>(packed + g * V);
      for (int r = 0; r < ROWS; r++) acc[r][g] += x[r * F + k] * w;
    }
  if (!h) return;
  for (int64_t k = 0; k < H; k++, packed += 3 * V) {
    const vec w0 = load<vec>(packed), w1 = load<vec>(packed + V), w2 = load<vec>(packed + 2 * V);
    for (int r = 0; r < ROWS; r++) {
      const float s = h[r * H + k];
      acc[r][0] += s * w0;
      acc[r][1] += s * w1;
      acc[r][3] += s * w2;
    }
  }
}

template <int V, int ROWS>
static void gru_forward_rows(const Sizes& n, int64_t unit, const float* packed, const float* bias,
                             const float* x, const float* valid, const float* h_before, float* h,
                             float* gates) {
  typedef typename Lanes<V>::vec vec;
  const int64_t left = n.H - unit;
  vec acc[ROWS][4];
  gru_gates<V, ROWS>(acc, packed, bias, x, n.F, h_before, n.H);
  for (int r = 0; r < ROWS; r++) {
    const vec reset = sigmoid_of(acc[r][0]), update = sigmoid_of(acc[r][1]), recurrent = acc[r][3];
    const vec now = tanh_of(acc[r][2] + reset * recurrent);
    const vec before = h_before ? load_some<V>(h_before + r * n.H + unit, left) : vec{};
    if (gates) {
      float* to = gates + r * 4 * V;
      store(to, reset);
      store(to + V, update);
      store(to + 2 * V, now);
      store(to + 3 * V, recurrent);
    }
    const vec out = before + valid[r] * (1.0f - update) * (now - before);
    store_some<V>(h + r * n.H + unit, out, left);
  }
}

// Pack weights by blocks of V units: (block, F + H, 3, V), zero beyond H; biases (block, 4, V).
template <int V>
static void gru_pack(const Sizes& n, const Weights& weights, float* packed, float* packed_bias) {
  const int64_t K = n.F + n.H;
  for (int64_t unit = 0; unit < n.H; unit += V) {
    const int64_t left = n.H - unit;
    for (int64_t k = 0; k < K; k++)
      for (int g = 0; g < 3; g++, packed += V)
        store(packed, load_some<V>(weights.kernel + (k * 3 + g) * n.H + unit, left));
    for (int g = 0; g < 3; g++, packed_bias += V)
      store(packed_bias, load_some<V>(weights.bias + g * n.H + unit, left));
    store(packed_bias, load_some<V>(weights.new_bias + unit, left));
    packed_bias += V;
  }
}

// hidden (T, B, H); gates (T, Hp / V, B, 4, V) for the backward pass, or null.
template <int V>
static void gru_forward(const Sizes& n, const Weights& weights, const Run& run) {
  const int64_t K = n.F + n.H, blocks = rounded(n.H, V) / V;
  float* packed = scratch(0, blocks * K * 3 * V);
  float* packed_bias = scratch(1, blocks * 4 * V);
  gru_pack<V>(n, weights, packed, packed_bias);
  for (int64_t t = 0; t < n.T; t++) {
    const float* before = t ? run.hidden + (t - 1) * n.B * n.H : nullptr;
    for (int64_t block = 0; block < blocks; block++)
      in_tiles<MOST_ROWS>(n.B, [&](int64_t r, auto count) {
        gru_forward_rows<V, decltype(count)::value>(
            n, block * V, packed + block * K * 3 * V, packed_bias + block * 4 * V,
            run.x + (t * n.B + r) * n.F, run.valid + t * n.B + r,
            before ? before + r * n.H : nullptr, run.hidden + (t * n.B + r) * n.H,
            run.gates ? run.gates + ((t * blocks + block) * n.B + r) * 4 * V : nullptr);
      });
  }
}

// One backward step for V units: compute the gradients of their gates and add them to those of the
// biases. Gates 0 to 2 have weights to the hidden state, gates 0, 1 and 3 to the inputs. Afterwards
// grad_h holds the part of the gradient that bypasses the gates.
template <int V>
__attribute__((noinline)) static void gru_gate_gradients(
    const Sizes& n, int64_t unit, const float* valid, const float* gates, const float* h_before,
    const float* coming, float* __restrict grad_h, float* __restrict grad_gates,
    float* __restrict grad_bias) {
  typedef typename Lanes<V>::vec vec;
  const int64_t Hp = rounded(n.H, V), left = n.H - unit;
  vec sums[4] = {};
  for (int64_t r = 0; r < n.B; r++, gates += 4 * V, grad_gates += 4 * Hp, grad_h += Hp) {
    const vec reset = load<vec>(gates), update = load<vec>(gates + V);
    const vec now = load<vec>(gates + 2 * V), recurrent = load<vec>(gates + 3 * V);
    const vec before = h_before ? load_some<V>(h_before + r * n.H, left) : vec{};
    vec dh = load<vec>(grad_h);
    if (coming) dh += load_some<V>(coming + r * n.H, left);
    const vec changed = valid[r] * (1.0f - update) * dh;
    const vec d_new = changed * (1.0f - now * now);
    const vec d_update = changed * (before - now) * update;
    const vec d_recurrent = d_new * reset;
    const vec d_reset = d_recurrent * recurrent * (1.0f - reset);
    store(grad_gates, d_reset);
    store(grad_gates + Hp, d_update);
    store(grad_gates + 2 * Hp, d_recurrent);
    store(grad_gates + 3 * Hp, d_new);
    sums[0] += d_reset;
    sums[1] += d_update;
    sums[2] += d_recurrent;
    sums[3] += d_new;
    store(grad_h, dh - changed);
  }
  for (int g = 0; g < 4; g++) {
    float* to = grad_bias + g * Hp;
    store(to, load<vec>(to) + sums[g]);
  }
}

// Backward pass. ``run``: saved by the forward pass. Gradients have the shapes of their arrays.
template <int V>
static void gru_backward(const Sizes& n, const Weights& weights, const Run& run,
                         const Gradients& grad) {
  const int64_t H = n.H, B = n.B, F = n.F, Hp = rounded(H, V), Fp = rounded(F, V), N = 4 * Hp;
  auto row_of = [&](int64_t g, int64_t unit) { return g * Hp + unit; };
  float* back = scratch(0, 3 * Hp * Hp);    // transposed weights of the hidden state, (3 Hp, Hp)
  float* back_x = scratch(1, 3 * Hp * Fp);  // and of the inputs, (3 Hp, Fp)
  float* grad_h = zeros(2, B * Hp);
  float* grad_gates = scratch(3, B * N);  // (B, [reset, update, recurrent, new])
  float* sums_h = zeros(4, H * 3 * Hp);
  float* sums_x = zeros(5, F * 3 * Hp);
  float* sums_bias = zeros(6, N);
  float* grad_inputs = scratch(7, B * Fp);
  const float* grad_new = grad_gates + 3 * Hp;
  transposed(weights.kernel + F * 3 * H, H, 3, H, 3 * Hp, Hp, row_of, back);
  if (grad.x) transposed(weights.kernel, F, 3, H, 3 * Hp, Fp, row_of, back_x);
  for (int64_t t = n.T - 1; t >= 0; t--) {
    const float* coming = gradient_at(n, t, grad);
    const float* before = t ? run.hidden + (t - 1) * B * H : nullptr;
    for (int64_t unit = 0; unit < Hp; unit += V)
      gru_gate_gradients<V>(n, unit, run.valid + t * B, run.gates + (t * Hp + unit) * B * 4,
                            before ? before + unit : nullptr, coming ? coming + unit : nullptr,
                            grad_h + unit, grad_gates + unit, sums_bias + unit);
    const Left x{run.x + t * B * F, 1, F};
    product<V>(F, 2 * Hp, B, x, {grad_gates, N}, {sums_x, 3 * Hp}, true);
    product<V>(F, Hp, B, x, {grad_new, N}, {sums_x + 2 * Hp, 3 * Hp}, true);
    if (grad.x) {
      const Out out{grad_inputs, Fp};
      product<V>(B, Fp, 2 * Hp, {grad_gates, N, 1}, {back_x, Fp}, out, false);
      product<V>(B, Fp, Hp, {grad_new, N, 1}, {back_x + 2 * Hp * Fp, Fp}, out, true);
      for (int64_t r = 0; r < B; r++)
        std::copy_n(grad_inputs + r * Fp, F, grad.x + (t * B + r) * F);
    }
    if (!t) break;
    product<V>(H, 3 * Hp, B, {before, 1, H}, {grad_gates, N}, {sums_h, 3 * Hp}, true);
    product<V>(B, Hp, 3 * Hp, {grad_gates, N, 1}, {back, Hp}, {grad_h, Hp}, true);
  }
  auto give = [&](const float* from, float* to) {
    for (int g = 0; g < 3; g++) std::copy_n(from + g * Hp, H, to + g * H);
  };
  for (int64_t k = 0; k < F; k++) give(sums_x + k * 3 * Hp, grad.kernel + k * 3 * H);
  for (int64_t k = 0; k < H; k++) give(sums_h + k * 3 * Hp, grad.kernel + (F + k) * 3 * H);
  std::copy_n(sums_bias + 2 * Hp, H, grad.new_bias);
  std::copy_n(sums_bias + 3 * Hp, Hp, sums_bias + 2 * Hp);  // the inputs' bias of the new gate
  give(sums_bias, grad.bias);
}

}  // namespace ISA_NAME

// The steps of LSTM and GRU between the products, row by row; see bfloat16_kernel.h.
//
// Instead of gates the forward pass saves the factors of the derivatives, in float16. For a padded row
// they are zero, and the state passes unchanged.
#pragma once

#include "bfloat16_layout.h"

namespace ISA_NAME {

// Columns input, forget, cell and output gate; weights as in lstm.py.
struct LstmCell {
  static constexpr int gates = 4, saved = BFLOAT16_LSTM_SAVED;
  static constexpr bool carries = true;  // has a cell state
  static constexpr int gate_of(int column, bool) { return column; }
  static constexpr float scale(int column) { return column == 2 ? 1.0f : 0.5f; }
  static const float* bias_of(const Weights& weights, int column, int64_t H) {
    return weights.bias + column * H;
  }

  // Return the new hidden state of 16 units from gates (4, 32, 16); update the cell state in place.
  INLINE vec forward(const float* z, float valid, float* cell, vec before, uint16_t* factors) {
    if (valid == 0.0f) {
      for (int k = 0; factors && k < saved; k++)
        store_half(factors + 16 * k, _mm512_set1_ps(k == saved - 1 ? 1.0f : 0.0f));
      return before;
    }
    const vec i = sigmoid_of_double(_mm512_loadu_ps(z));
    const vec f = sigmoid_of_double(_mm512_loadu_ps(z + 512));
    const vec g = table_tanh(_mm512_loadu_ps(z + 1024));
    const vec o = sigmoid_of_double(_mm512_loadu_ps(z + 1536));
    const vec fc = f * _mm512_loadu_ps(cell), ig = i * g, c = fc + ig;
    const vec tanh_c = table_tanh(c), h = o * tanh_c;
    _mm512_storeu_ps(cell, c);
    if (factors) {
      const vec all[saved] = {ig - ig * i, fc - fc * f, i - ig * g, h - h * o, o - h * tanh_c, f};
      for (int k = 0; k < saved; k++) store_half(factors + 16 * k, all[k]);
    }
    return h;
  }

  // Compute the gates' gradients from that of the hidden state; update that of the cell in place.
  // Return the part of the previous hidden state's gradient that bypasses the gates.
  INLINE vec backward(const uint16_t* factors, float valid, vec dh, float* grad_cell,
                      vec (&out)[4]) {
    const vec dc = _mm512_loadu_ps(grad_cell) + dh * load_half(factors + 64);
    out[0] = dc * load_half(factors);
    out[1] = dc * load_half(factors + 16);
    out[2] = dc * load_half(factors + 32);
    out[3] = dh * load_half(factors + 48);
    _mm512_storeu_ps(grad_cell, dc * load_half(factors + 80));
    return valid == 0.0f ? dh : _mm512_setzero_ps();
  }

  static void unpack_bias(const Gradients& grad, int column, int64_t unit, vec sum, int64_t H) {
    store_first(grad.bias + column * H + unit, sum, H - unit);
  }
};

// Columns reset gate, update gate, and the new gate's parts from inputs and from hidden state;
// weights as in gru.py.
struct GruCell {
  static constexpr int gates = 3, saved = BFLOAT16_GRU_SAVED;
  static constexpr bool carries = false;
  static constexpr int gate_of(int column, bool input) {
    return column < 2 ? column : (column == 2) == input ? 2 : -1;
  }
  static constexpr float scale(int column) { return column < 2 ? 0.5f : 1.0f; }
  static const float* bias_of(const Weights& weights, int column, int64_t H) {
    return column < 3 ? weights.bias + column * H : weights.new_bias;
  }

  INLINE vec forward(const float* z, float valid, float*, vec before, uint16_t* factors) {
    const vec reset = sigmoid_of_double(_mm512_loadu_ps(z));
    const vec update = sigmoid_of_double(_mm512_loadu_ps(z + 512));
    const vec recurrent = _mm512_loadu_ps(z + 1536);
    const vec now = table_tanh(_mm512_fmadd_ps(reset, recurrent, _mm512_loadu_ps(z + 1024)));
    const vec one = _mm512_set1_ps(1.0f), left = one - update;
    const vec changed = _mm512_set1_ps(valid) * left;
    if (factors) {
      const vec all[saved] = {changed - changed * now * now, changed * (before - now) * update, reset,
                              reset * (one - reset) * recurrent, one - changed};
      for (int k = 0; k < saved; k++) store_half(factors + 16 * k, all[k]);
    }
    return before + changed * (now - before);
  }

  INLINE vec backward(const uint16_t* factors, float, vec dh, float*, vec (&out)[4]) {
    out[2] = dh * load_half(factors);
    out[1] = dh * load_half(factors + 16);
    out[3] = out[2] * load_half(factors + 32);
    out[0] = out[2] * load_half(factors + 48);
    return dh * load_half(factors + 64);
  }

  static void unpack_bias(const Gradients& grad, int column, int64_t unit, vec sum, int64_t H) {
    store_first((column < 3 ? grad.bias + column * H : grad.new_bias) + unit, sum, H - unit);
  }
};

}  // namespace ISA_NAME

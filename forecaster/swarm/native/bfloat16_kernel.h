// The recurrence of one model by bfloat16 products with float32 sums, forward and backward. Outside the
// products, states, activations and gradients are float32.
//
// LSTM and GRU differ between the products only (bfloat16_cells.h); both have four columns of tiles
// for a block of hidden units. T steps, B rows (batch), F inputs, H hidden units.
#pragma once

#include "bfloat16_cells.h"

namespace ISA_NAME {

// The rows of one step and one block of 32.
struct Rows {
  int64_t block, count;
  const float* valid;
};

// Compute the gates of a block's rows for a pair of unit blocks: z (unit block, 4, 32, 16).
static inline void gates_of(const Plan& plan, int64_t block, int64_t pair, int64_t count,
                            const uint32_t* step, const uint32_t* packed, const float* biases,
                            float* z) {
  const int64_t tiles = plan.depth * TILE, column = pair * 8;
  tile_products<Start::row>(plan.tile_rows(block), 4 * count,
                            {step + block * 2 * tiles, tiles, TILE},
                            {packed + column * tiles, tiles, TILE}, plan.gate_depth(), {z, TILE, 512},
                            biases + column * 16);
}

// Compute new states of a block's rows, N unit blocks at once: floats in ``hidden``, words in ``next``.
template <class Cell, int N>
__attribute__((noinline)) static void new_states(const Plan& plan, const Rows& rows, int64_t pair,
                                                 const float* z, float* cell, float* hidden,
                                                 uint32_t* next, uint16_t* factors, float* out) {
  for (int64_t row = 0; row < rows.count; row++) {
    vec h[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int u = 0; u < N; u++) {
      const int64_t at = u * 512 + row * 16;
      h[u] = Cell::forward(z + u * 2048 + row * 16, rows.valid[row], cell + at,
                           _mm512_loadu_ps(hidden + at),
                           factors ? factors + (u * 32 + row) * Cell::saved * 16 : nullptr);
      _mm512_storeu_ps(hidden + at, h[u]);
      if (out) {
        const int64_t unit = pair * 32 + u * 16;
        store_first(out + row * plan.H + unit, h[u], plan.H - unit);
      }
    }
    if (N == 1 && HALVES_BLOCKS) h[1] = _mm512_shuffle_f32x4(h[0], h[0], 0x0e);  // h[0]'s upper half
    _mm512_storeu_si512(next + plan.row_at(row, plan.depth, pair), pair_of(h[0], h[1]));
  }
}

// Forward pass: hidden (T, B, H), or (B, H) of the last step. For the backward pass, unless null:
// ``words``, operands of each step's products, and ``factors``, (T, block, unit block, 32, saved, 16).
template <class Cell>
static void bfloat16_forward(const Sizes& n, const Weights& weights, const Bfloat16Run& run) {
  const Plan plan(n);
  TilesInUse in_use;
  const int64_t step = plan.step_words();
  uint32_t* packed = word_scratch(0, plan.units * 4 * plan.depth * TILE);
  float* biases = scratch(1, plan.units * 64);
  pack_weights<Cell>(plan, weights, packed, biases);
  float* z = scratch(2, 2 * 2048);
  float* cell = zeros(3, plan.state());
  float* hidden = zeros(4, plan.state());
  uint32_t* two_steps = run.words ? nullptr : word_scratch(5, 2 * step);
  uint32_t* last = word_scratch(6, step);  // after the last step
  auto step_at = [&](int64_t t) {
    return t == n.T ? last : run.words ? run.words + t * step : two_steps + t % 2 * step;
  };
  std::memset(step_at(0), 0, step * sizeof(uint32_t));
  for (int64_t t = 0; t < n.T; t++) {
    uint32_t *now = step_at(t), *next = step_at(t + 1);
    pack_inputs(plan, run.x + t * n.B * n.F, now);
    clear_missing_rows(plan, next);
    float* out = run.last_only ? (t == n.T - 1 ? run.hidden : nullptr) : run.hidden + t * n.B * n.H;
    for (int64_t block = 0; block < plan.blocks; block++)
      for (int64_t pair = 0; pair < plan.pairs; pair++) {
        const Rows rows = {block, plan.rows_of(block), run.valid + t * n.B + block * 32};
        const int64_t unit = block * plan.units + pair * 2, count = plan.units - pair * 2;
        gates_of(plan, block, pair, std::min<int64_t>(2, count), now, packed, biases, z);
        auto states = count > 1 ? new_states<Cell, 2> : new_states<Cell, 1>;
        states(plan, rows, pair, z, cell + unit * 512, hidden + unit * 512,
               next + block * 2 * plan.depth * TILE,
               run.factors ? run.factors + (t * plan.blocks * plan.units + unit) * 512 * Cell::saved
                           : nullptr,
               out ? out + block * 32 * n.H : nullptr);
      }
  }
}

// Compute the gradients of the gates of a block's rows, 16 units, in two layouts: words of two gates,
// one per row, and words of two rows, (gate, 16, 16). ``sums``: the gradients of the biases.
template <class Cell>
__attribute__((noinline)) static void gate_gradients(const Plan& plan, const Rows& rows, int64_t unit,
                                                     const uint16_t* factors, const float* coming,
                                                     float* grad_h, float* grad_c, uint32_t* by_gate,
                                                     uint32_t* by_row, float* sums) {
  vec total[4];
  for (int g = 0; g < 4; g++) total[g] = _mm512_loadu_ps(sums + g * 16);
  for (int64_t row = 0; row < rows.count; row += 2) {
    vec both[2][4] = {};
    for (int64_t r = 0; r < 2 && row + r < rows.count; r++) {
      const int64_t at = (row + r) * 16;
      vec dh = _mm512_loadu_ps(grad_h + at);
      if (coming) dh += load_first(coming + (row + r) * plan.H, plan.H - unit * 16);
      const vec kept = Cell::backward(factors + at * Cell::saved, rows.valid[row + r], dh,
                                      grad_c + at, both[r]);
      _mm512_storeu_ps(grad_h + at, kept);
      for (int g = 0; g < 4; g += 2)
        _mm512_storeu_si512(by_gate + plan.row_at(row + r, 2 * plan.units, 2 * unit + g / 2),
                            pair_of(both[r][g], both[r][g + 1]));
      for (int g = 0; g < 4; g++) total[g] += both[r][g];
    }
    for (int g = 0; g < 4; g++)
      _mm512_storeu_si512(by_row + g * TILE + row * 8, pair_of(both[0][g], both[1][g]));
  }
  for (int g = 0; g < 4; g++) _mm512_storeu_ps(sums + g * 16, total[g]);
}

// Collects the operands of sums over rows for several steps, to sum them at once.
struct Collected {
  int64_t most, count = 0;
  uint32_t *seen, *gates;  // (step, block, depth, 2) and (step, block, unit block, 4) tiles
  float* sums;             // (depth, 2, unit block, 4) tiles

  explicit Collected(const Plan& plan) {
    const int64_t one = std::max<int64_t>(1, plan.blocks * (plan.depth * 2 + plan.units * 4) * TILE);
    most = std::max<int64_t>(1, std::min<int64_t>(plan.T < 16 ? plan.T : 16, 65536 / one));
    seen = word_scratch(5, most * seen_step(plan));
    gates = word_scratch(6, most * gates_step(plan));
    if (plan.B % 32) std::memset(gates, 0, most * gates_step(plan) * 4);  // absent rows stay zero
    sums = zeros(7, plan.depth * 2 * plan.units * 4 * TILE);
  }
  static int64_t seen_step(const Plan& plan) { return plan.blocks * plan.depth * 2 * TILE; }
  static int64_t gates_step(const Plan& plan) { return plan.blocks * plan.units * 4 * TILE; }

  void see(const Plan& plan, const uint32_t* step) {
    for (int64_t block = 0; block < plan.blocks; block++)
      for (int64_t k = 0; k < plan.depth; k++) {
        const uint32_t* top = step + (block * 2 * plan.depth + k) * TILE;
        uint32_t* to = seen + count * seen_step(plan) + (block * plan.depth + k) * 2 * TILE;
        transpose_pairs(top, top + plan.depth * TILE, to);
      }
  }
  void add_up(const Plan& plan) {
    const int64_t columns = plan.units * 4;
    for (int64_t k = 0; k < plan.depth; k++) {
      const TileRows rows = k < plan.pairs ? plan.hidden_rows(k) : plan.input_rows(k - plan.pairs);
      tile_products<Start::out>(rows, columns,
                                {seen + k * 2 * TILE, TILE, plan.depth * 2 * TILE},
                                {gates, TILE, columns * TILE}, {count * plan.blocks},
                                {sums + k * 2 * columns * TILE, columns * TILE, TILE});
    }
    count = 0;
  }
};

// Compute grad_gates W, for the hidden states (columns: unit blocks) or the inputs.
template <Start START>
static void through_weights(const Plan& plan, const uint32_t* by_gate, const uint32_t* back,
                            int64_t columns, float* out) {
  const int64_t tiles = 2 * plan.units * TILE;
  for (int64_t block = 0; block < plan.blocks; block++)
    tile_products<START>(plan.tile_rows(block), columns, {by_gate + block * 2 * tiles, tiles, TILE},
                         {back, tiles, TILE}, {2 * plan.units},
                         {out + block * columns * 512, TILE, 512});
}

// Backward pass. ``run``: saved by the forward pass. Gradients have the shapes of their arrays.
template <class Cell>
static void bfloat16_backward(const Sizes& n, const Weights& weights, const Bfloat16Run& run,
                            const Gradients& grad) {
  const Plan plan(n);
  TilesInUse in_use;
  const int64_t F_tiles = (n.F + 15) / 16, by_gate_size = plan.blocks * plan.units * 4 * TILE;
  uint32_t* back = word_scratch(0, plan.units * plan.units * 2 * TILE);
  uint32_t* back_x = word_scratch(1, F_tiles * plan.units * 2 * TILE);
  float* grad_h = zeros(2, plan.state());
  float* grad_c = zeros(3, plan.state());
  uint32_t* by_gate = zero_words(4, by_gate_size);
  Collected collected(plan);
  float* sums = zeros(8, plan.units * 64);
  float* grad_x = scratch(9, plan.blocks * F_tiles * 512);
  pack_back<Cell>(plan, weights.kernel, n.F, n.H, false, back);
  if (grad.x) pack_back<Cell>(plan, weights.kernel, 0, n.F, true, back_x);
  for (int64_t t = n.T - 1; t >= 0; t--) {
    const float* coming = gradient_at(n, t, grad);
    bool kept = !Cell::carries;
    for (int64_t r = 0; r < n.B && !kept; r++) kept = run.valid[t * n.B + r] == 0.0f;
    uint32_t* by_row = collected.gates + collected.count * Collected::gates_step(plan);
    for (int64_t block = 0; block < plan.blocks; block++)
      for (int64_t unit = 0; unit < plan.units; unit++) {
        const int64_t at = block * plan.units + unit;
        gate_gradients<Cell>(
            plan, {block, plan.rows_of(block), run.valid + t * n.B + block * 32}, unit,
            run.factors + (t * plan.blocks * plan.units + at) * 512 * Cell::saved,
            coming ? coming + block * 32 * n.H + unit * 16 : nullptr, grad_h + at * 512,
            grad_c + at * 512, by_gate + block * plan.units * 4 * TILE, by_row + at * 4 * TILE,
            sums + unit * 64);
      }
    collected.see(plan, run.words + t * plan.step_words());
    if (++collected.count == collected.most || !t) collected.add_up(plan);
    if (grad.x) {
      through_weights<Start::zero>(plan, by_gate, back_x, F_tiles, grad_x);
      for (int64_t r = 0; r < n.B; r++)
        for (int64_t k = 0; k < F_tiles; k++)
          store_first(grad.x + (t * n.B + r) * n.F + k * 16,
                      _mm512_loadu_ps(grad_x + (r / 32 * F_tiles + k) * 512 + r % 32 * 16),
                      n.F - k * 16);
    }
    if (!t) break;
    if (kept)
      through_weights<Start::out>(plan, by_gate, back, plan.units, grad_h);
    else
      through_weights<Start::zero>(plan, by_gate, back, plan.units, grad_h);
  }
  unpack_gradients<Cell>(plan, collected.sums, grad.kernel);
  for (int64_t unit = 0; unit < plan.units; unit++)
    for (int column = 0; column < 4; column++)
      Cell::unpack_bias(grad, column, unit * 16, _mm512_loadu_ps(sums + (unit * 4 + column) * 16), n.H);
}

}  // namespace ISA_NAME

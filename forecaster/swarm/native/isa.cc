// The kernels for one instruction set, selected by the compiler's flags and by -DISA_NAME, -DVECTOR
// (floats per vector) and -DMOST_ROWS (rows per tile: 6 with 32 registers, 3 with 16).
// Hidden layers of at most half a vector use vectors of half the width.
#include "gru_kernel.h"
#include "kernels.h"
#include "lstm_kernel.h"

namespace ISA_NAME {

static constexpr int half = VECTOR > 4 ? VECTOR / 2 : VECTOR;

// clang-format off
static void run_lstm_forward(const Sizes& n, const Weights& weights, const Run& run) {
  n.H <= half ? lstm_forward<half>(n, weights, run) : lstm_forward<VECTOR>(n, weights, run);
}
static void run_lstm_backward(const Sizes& n, const Weights& weights, const Run& run, const Gradients& grad) {
  n.H <= half ? lstm_backward<half>(n, weights, run, grad) : lstm_backward<VECTOR>(n, weights, run, grad);
}
static void run_gru_forward(const Sizes& n, const Weights& weights, const Run& run) {
  n.H <= half ? gru_forward<half>(n, weights, run) : gru_forward<VECTOR>(n, weights, run);
}
static void run_gru_backward(const Sizes& n, const Weights& weights, const Run& run, const Gradients& grad) {
  n.H <= half ? gru_backward<half>(n, weights, run, grad) : gru_backward<VECTOR>(n, weights, run, grad);
}
// clang-format on

extern const Kernels kernels = {{run_lstm_forward, run_lstm_backward},
                                {run_gru_forward, run_gru_backward}};

}  // namespace ISA_NAME

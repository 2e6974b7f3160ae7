// The kernel for one instruction set, chosen by the compiler's flags and by -DISA_NAME, -DVECTOR
// (floats in a vector) and -DMOST_ROWS (rows of a tile: 6 where there are 32 registers, 3 where 16).
// Hidden layers of half a vector at most use vectors of half the width.
#include "lstm_kernel.h"
#include "lstm_native.h"

namespace ISA_NAME {

static constexpr int half = VECTOR > 4 ? VECTOR / 2 : VECTOR;

static void run_forward(const LstmSizes& n, const float* kernel, const float* bias, const float* x,
                        const float* valid, float* hidden, float* cell, float* gates) {
  const Sizes sizes{n.T, n.B, n.F, n.H};
  if (n.H <= half)
    forward<half>(sizes, kernel, bias, x, valid, hidden, cell, gates);
  else
    forward<VECTOR>(sizes, kernel, bias, x, valid, hidden, cell, gates);
}

static void run_backward(const LstmSizes& n, const float* kernel, const float* x,
                         const float* valid, const float* hidden, const float* cell,
                         const float* gates, const float* grad_hidden, bool last_only,
                         float* grad_kernel, float* grad_bias, float* grad_x) {
  const Sizes sizes{n.T, n.B, n.F, n.H};
  if (n.H <= half)
    backward<half>(sizes, kernel, x, valid, hidden, cell, gates, grad_hidden, last_only,
                   grad_kernel, grad_bias, grad_x);
  else
    backward<VECTOR>(sizes, kernel, x, valid, hidden, cell, gates, grad_hidden, last_only,
                     grad_kernel, grad_bias, grad_x);
}

extern const LstmKernel kernel = {run_forward, run_backward};

}  // namespace ISA_NAME

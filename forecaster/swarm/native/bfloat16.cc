// The bfloat16 kernels for the instruction set named by -DISA_NAME: matrix units (AMX) by default,
// AVX-512 BF16 with -mavx512bf16, AVX-512 alone with -DEMULATED_TILES.
#include "bfloat16_kernel.h"

namespace ISA_NAME {

extern const Bfloat16Kernels kernels = {{bfloat16_forward<LstmCell>, bfloat16_backward<LstmCell>},
                                      {bfloat16_forward<GruCell>, bfloat16_backward<GruCell>}};

}  // namespace ISA_NAME

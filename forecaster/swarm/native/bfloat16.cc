// The kernels of bfloat16 for one instruction set, which -DISA_NAME names: by matrix units (AMX),
// with -mavx512bf16 by AVX-512 BF16, with -DEMULATED_TILES by AVX-512 alone.
#include "bfloat16_kernel.h"

namespace ISA_NAME {

extern const Bfloat16Kernels kernels = {{bfloat16_forward<LstmCell>, bfloat16_backward<LstmCell>},
                                      {bfloat16_forward<GruCell>, bfloat16_backward<GruCell>}};

}  // namespace ISA_NAME

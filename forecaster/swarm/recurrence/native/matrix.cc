// The kernels on matrix units, or with -DEMULATED_TILES by AVX-512 alone; -DISA_NAME names them.
#include "matrix_kernel.h"

namespace ISA_NAME {

extern const MatrixKernels kernels = {{matrix_forward<LstmCell>, matrix_backward<LstmCell>},
                                      {matrix_forward<GruCell>, matrix_backward<GruCell>}};

}  // namespace ISA_NAME

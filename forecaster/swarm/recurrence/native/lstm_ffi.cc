// The kernels as XLA custom calls, and the choice of the instruction set when the library is loaded.
#include <cstdlib>
#include <cstring>

#include "lstm_native.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

#if defined(__x86_64__)
namespace avx512 { extern const LstmKernel kernel; }
namespace avx2 { extern const LstmKernel kernel; }
#endif
namespace plain { extern const LstmKernel kernel; }

namespace {

struct Choice {
  const char* name;
  const LstmKernel* kernel;
};

// FORECASTER_KERNEL=plain|avx2|avx512 asks for a lesser set than the machine has.
Choice choose() {
  const char* asked = std::getenv("FORECASTER_KERNEL");
  auto wanted = [&](const char* name) { return !asked || !*asked || !std::strcmp(asked, name); };
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (wanted("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return {"avx512", &avx512::kernel};
  if (wanted("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {"avx2", &avx2::kernel};
  return {"plain", &plain::kernel};
#elif defined(__aarch64__)
  return {"neon", &plain::kernel};  // every 64-bit ARM has it: the compiler's plain code uses it
#else
  return {"plain", &plain::kernel};
#endif
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Array>;

int64_t from_end(const Array& array, int64_t axis) {
  const auto sizes = array.dimensions();
  return static_cast<int64_t>(sizes[sizes.size() - axis]);
}

// inputs (..., T, B, F) and kernel (..., F + H, 4H) decide all sizes.
LstmSizes sizes_of(const Array& kernel, const Array& x) {
  return {from_end(x, 3), from_end(x, 2), from_end(x, 1), from_end(kernel, 1) / 4};
}

ffi::Error check(const LstmSizes& n, const Array& kernel) {
  if (from_end(kernel, 2) != n.F + n.H || from_end(kernel, 1) != 4 * n.H)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "kernel: expected shape (F + H, 4H)");
  return ffi::Error::Success();
}

ffi::Error forward(Array kernel, Array bias, Array x, Array valid, Result hidden, Result cell,
                   Result gates) {
  const LstmSizes n = sizes_of(kernel, x);
  if (auto error = check(n, kernel); error.failure()) return error;
  const int64_t members = x.element_count() / std::max<int64_t>(1, n.T * n.B * n.F);
  const int64_t saved = n.T * n.B * lstm_padded(n.H);
  for (int64_t m = 0; m < members; m++)
    chosen().kernel->forward(n, kernel.typed_data() + m * (n.F + n.H) * 4 * n.H,
                             bias.typed_data() + m * 4 * n.H, x.typed_data() + m * n.T * n.B * n.F,
                             valid.typed_data() + m * n.T * n.B,
                             hidden->typed_data() + m * n.T * n.B * n.H,
                             cell->typed_data() + m * saved, gates->typed_data() + m * 4 * saved);
  return ffi::Error::Success();
}

ffi::Error infer(Array kernel, Array bias, Array x, Array valid, Result hidden) {
  const LstmSizes n = sizes_of(kernel, x);
  if (auto error = check(n, kernel); error.failure()) return error;
  const int64_t members = x.element_count() / std::max<int64_t>(1, n.T * n.B * n.F);
  for (int64_t m = 0; m < members; m++)
    chosen().kernel->forward(n, kernel.typed_data() + m * (n.F + n.H) * 4 * n.H,
                             bias.typed_data() + m * 4 * n.H, x.typed_data() + m * n.T * n.B * n.F,
                             valid.typed_data() + m * n.T * n.B,
                             hidden->typed_data() + m * n.T * n.B * n.H, nullptr, nullptr);
  return ffi::Error::Success();
}

ffi::Error backward(Array kernel, Array x, Array valid, Array hidden, Array cell, Array gates,
                    Array grad_hidden, Result grad_kernel, Result grad_bias, Result grad_x,
                    bool last_only, bool want_x) {
  const LstmSizes n = sizes_of(kernel, x);
  if (auto error = check(n, kernel); error.failure()) return error;
  const int64_t members = x.element_count() / std::max<int64_t>(1, n.T * n.B * n.F);
  const int64_t saved = n.T * n.B * lstm_padded(n.H), coming = (last_only ? 1 : n.T) * n.B * n.H;
  for (int64_t m = 0; m < members; m++)
    chosen().kernel->backward(
        n, kernel.typed_data() + m * (n.F + n.H) * 4 * n.H, x.typed_data() + m * n.T * n.B * n.F,
        valid.typed_data() + m * n.T * n.B, hidden.typed_data() + m * n.T * n.B * n.H,
        cell.typed_data() + m * saved, gates.typed_data() + m * 4 * saved,
        grad_hidden.typed_data() + m * coming, last_only,
        grad_kernel->typed_data() + m * (n.F + n.H) * 4 * n.H,
        grad_bias->typed_data() + m * 4 * n.H,
        want_x ? grad_x->typed_data() + m * n.T * n.B * n.F : nullptr);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    forecaster_lstm_forward, forward,
    ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>().Ret<Array>().Ret<Array>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    forecaster_lstm_infer, infer,
    ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    forecaster_lstm_backward, backward,
    ffi::Ffi::Bind()
        .Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>().Arg<Array>()
        .Ret<Array>().Ret<Array>().Ret<Array>()
        .Attr<bool>("last_only")
        .Attr<bool>("want_x"));

extern "C" const char* forecaster_instructions() { return chosen().name; }

// The kernels on matrix units as XLA custom calls, and whether this process may use such units.
#include "ffi_call.h"

#if defined(__x86_64__)
namespace amx_emulated { extern const MatrixKernels kernels; }
#if !defined(WITHOUT_AMX)
namespace amx { extern const MatrixKernels kernels; }
#endif
#if defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace {

#if defined(__x86_64__) && defined(__linux__) && !defined(WITHOUT_AMX)
// Whether processor and system have tiles of bfloat16; asks the system for leave to use them.
const char* why_no_amx() {
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, saved_by_system = 3u << 17;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & bf16) == 0 || (d & tile) == 0)
    return "this processor has no matrix units for bfloat16 (AMX)";
  __get_cpuid(1, &a, &b, &c, &d);
  unsigned enabled = 0, upper = 0;
  if (c & bit_OSXSAVE) asm volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
  constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if ((enabled & saved_by_system) != saved_by_system || syscall(SYS_arch_prctl, request, tile_data))
    return "the system does not let this process use the processor's matrix units (AMX)";
  return "";
}
#endif

// Either kernels, or why there are none.
struct Units {
  const MatrixKernels* kernels;
  const char* why_not;
};

Units choose(bool emulated) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (emulated && avx512) return {&amx_emulated::kernels, ""};
  if (emulated) return {nullptr, "this processor has no AVX-512 to emulate matrix units by"};
#if defined(WITHOUT_AMX)
  return {nullptr, "the compiler that built the kernel knows no matrix units (AMX)"};
#elif defined(__linux__)
  const char* why_not = avx512 ? why_no_amx() : "this processor has no AVX-512";
  return *why_not ? Units{nullptr, why_not} : Units{&amx::kernels, ""};
#endif
#endif
  return {nullptr, "matrix units are used on Linux on x86-64 (AMX) only"};
}

const Units& units(bool emulated) {
  static const Units by_avx512 = choose(true), real = choose(false);
  return emulated ? by_avx512 : real;
}

using Words = ffi::Buffer<ffi::U32>;
using Factors = ffi::Buffer<ffi::U16>;

// Sizes of one member; a GRU has a second bias.
struct MatrixCall : Call {
  bool gru;
  const Units& units;

  MatrixCall(const Array& kernel, const Array& x, bool gru, bool emulated)
      : Call(kernel, x, gru ? 3 : 4), gru(gru), units(::units(emulated)) {}
  const MatrixCell& cell() const { return gru ? units.kernels->gru : units.kernels->lstm; }
  int64_t new_bias() const { return gru ? n.H : 0; }
  int64_t out(bool last_only) const { return (last_only ? (n.T > 0 ? 1 : 0) : n.T) * n.B * n.H; }
  int64_t words() const { return n.T * matrix_words(n.B, n.F, n.H); }
  int64_t factors() const {
    return n.T * matrix_factors(n.B, n.H, gru ? MATRIX_GRU_SAVED : MATRIX_LSTM_SAVED);
  }
  ffi::Error check_saved(size_t words_given, size_t factors_given) const {
    if (!units.kernels) return ffi::Error(ffi::ErrorCode::kFailedPrecondition, units.why_not);
    if (static_cast<int64_t>(words_given) != members * words() ||
        static_cast<int64_t>(factors_given) != members * factors())
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "forecaster's kernel: saved arrays of another size");
    return ffi::Error::Success();
  }
};

ffi::Error forward(Array kernel, Array bias, Array new_bias, Array x, Array valid, Result hidden,
                   ffi::Result<Words>* words, ffi::Result<Factors>* factors, bool gru,
                   bool last_only, bool emulated) {
  const MatrixCall c(kernel, x, gru, emulated);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"bias", bias, c.bias()},
                            {"new bias", new_bias, c.new_bias()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()},
                            {"hidden", *hidden, c.out(last_only)}}); error.failure())
    return error;
  if (auto error = c.check_saved(words ? (*words)->element_count() : c.members * c.words(),
                                 factors ? (*factors)->element_count() : c.members * c.factors());
      error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    c.cell().forward(
        c.n, {kernel.typed_data() + m * c.weights(), bias.typed_data() + m * c.bias(),
              new_bias.typed_data() + m * c.new_bias()},
        {x.typed_data() + m * c.inputs(), valid.typed_data() + m * c.rows(),
         hidden->typed_data() + m * c.out(last_only), last_only,
         words ? (*words)->typed_data() + m * c.words() : nullptr,
         factors ? (*factors)->typed_data() + m * c.factors() : nullptr});
  return ffi::Error::Success();
}

ffi::Error matrix_infer(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                        Result hidden, bool gru, bool last_only, bool emulated) {
  return forward(kernel, bias, new_bias, x, valid, hidden, nullptr, nullptr, gru, last_only, emulated);
}

ffi::Error matrix_forward(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                          Result hidden, ffi::Result<Words> words, ffi::Result<Factors> factors,
                          bool gru, bool last_only, bool emulated) {
  return forward(kernel, bias, new_bias, x, valid, hidden, &words, &factors, gru, last_only, emulated);
}

ffi::Error matrix_backward(Array kernel, Array x, Array valid, Words words, Factors factors,
                           Array grad_hidden, Result grad_kernel, Result grad_bias,
                           Result grad_new_bias, Result grad_x, bool gru, bool last_only,
                           bool emulated, bool want_x) {
  const MatrixCall c(kernel, x, gru, emulated);
  const int64_t coming = c.out(last_only);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()}, {"gradient", grad_hidden, coming},
                            {"gradient of the kernel", *grad_kernel, c.weights()},
                            {"gradient of the bias", *grad_bias, c.bias()},
                            {"gradient of the new bias", *grad_new_bias, c.new_bias()},
                            {"gradient of the inputs", *grad_x, c.inputs()}}); error.failure())
    return error;
  if (auto error = c.check_saved(words.element_count(), factors.element_count()); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    c.cell().backward(
        c.n, {kernel.typed_data() + m * c.weights(), nullptr, nullptr},
        {x.typed_data() + m * c.inputs(), valid.typed_data() + m * c.rows(), nullptr, last_only,
         words.typed_data() + m * c.words(), factors.typed_data() + m * c.factors()},
        {grad_hidden.typed_data() + m * coming, last_only,
         grad_kernel->typed_data() + m * c.weights(), grad_bias->typed_data() + m * c.bias(),
         grad_new_bias->typed_data() + m * c.new_bias(),
         want_x ? grad_x->typed_data() + m * c.inputs() : nullptr});
  return ffi::Error::Success();
}

}  // namespace

#define IN_1 .Arg<Array>()
#define OUT_1 .Ret<Array>()
#define KIND .Attr<bool>("gru").Attr<bool>("last_only").Attr<bool>("emulated")

XLA_FFI_DEFINE_HANDLER_SYMBOL(forecaster_matrix_infer, matrix_infer,
                              ffi::Ffi::Bind() IN_1 IN_1 IN_1 IN_1 IN_1 OUT_1 KIND);
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    forecaster_matrix_forward, matrix_forward,
    ffi::Ffi::Bind() IN_1 IN_1 IN_1 IN_1 IN_1 OUT_1.Ret<Words>().Ret<Factors>() KIND);
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    forecaster_matrix_backward, matrix_backward,
    ffi::Ffi::Bind() IN_1 IN_1 IN_1.Arg<Words>().Arg<Factors>() IN_1 OUT_1 OUT_1 OUT_1 OUT_1 KIND
        .Attr<bool>("want_x"));

extern "C" const char* forecaster_no_matrix_units(bool emulated) { return units(emulated).why_not; }

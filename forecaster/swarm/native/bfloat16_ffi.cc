// The bfloat16 kernels as XLA custom calls, and the instructions that this process may use for them.
#include <string_view>

#include "ffi_call.h"

#if defined(__x86_64__)
namespace amx_emulated { extern const Bfloat16Kernels kernels; }
#if !defined(WITHOUT_AVX512_BF16)
namespace avx512_bf16 { extern const Bfloat16Kernels kernels; }
#endif
#if !defined(WITHOUT_AMX)
namespace amx { extern const Bfloat16Kernels kernels; }
#endif
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace {

// Kernels, or the reason why there are none.
struct Units {
  const Bfloat16Kernels* kernels;
  const char* why_not;
};

#if defined(__x86_64__)

bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

Units emulated() {
  if (has_avx512()) return {&amx_emulated::kernels, ""};
  return {nullptr, "this processor has no AVX-512 to emulate matrix units by"};
}

Units avx512() {
#if defined(WITHOUT_AVX512_BF16)
  return {nullptr, "the compiler that built the kernel knows no AVX-512 BF16"};
#else
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bf16 = 1u << 5;
  if (!has_avx512() || !__builtin_cpu_supports("avx512bw") || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & bf16) == 0)
    return {nullptr, "this processor has no AVX-512 BF16"};
  return {&avx512_bf16::kernels, ""};
#endif
}

// Check processor and system for matrix units, and ask the system for permission to use them.
Units matrix_units() {
#if defined(WITHOUT_AMX)
  return {nullptr, "the compiler that built the kernel knows no matrix units (AMX)"};
#elif defined(__linux__)
  if (!has_avx512()) return {nullptr, "this processor has no AVX-512 BF16"};
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, saved_by_system = 3u << 17;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & bf16) == 0 || (d & tile) == 0)
    return {nullptr, "this processor has no matrix units for bfloat16 (AMX)"};
  __get_cpuid(1, &a, &b, &c, &d);
  unsigned enabled = 0, upper = 0;
  if (c & bit_OSXSAVE) asm volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
  constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if ((enabled & saved_by_system) != saved_by_system || syscall(SYS_arch_prctl, request, tile_data))
    return {nullptr, "the system does not let this process use the processor's matrix units (AMX)"};
  return {&amx::kernels, ""};
#else
  return {nullptr, "matrix units are used on Linux on x86-64 (AMX) only"};
#endif
}

// Units by their name in FORECASTER_KERNEL.
const Units& units(std::string_view name) {
  static const Units amx = matrix_units(), bf16 = avx512(), by_avx512 = emulated();
  static const Units none = {nullptr, "no such instructions"};
  if (name == "amx-emulated") return by_avx512;
  return name == "amx" ? amx : name == "avx512-bf16" ? bf16 : none;
}

#else

const Units& units(std::string_view) {
  static const Units none = {nullptr, "only x86-64 has compiled code for bfloat16"};
  return none;
}

#endif

using Words = ffi::Buffer<uint32_t>;
using Factors = ffi::Buffer<uint16_t>;

// Sizes for one member; a GRU has a second bias.
struct Bfloat16Call : Call {
  bool gru;
  const Units& units;

  Bfloat16Call(const Array& kernel, const Array& x, bool gru, std::string_view by)
      : Call(kernel, x, gru ? 3 : 4), gru(gru), units(::units(by)) {}
  const Bfloat16Cell& cell() const { return gru ? units.kernels->gru : units.kernels->lstm; }
  int64_t new_bias() const { return gru ? n.H : 0; }
  int64_t out(bool last_only) const { return (last_only ? (n.T > 0 ? 1 : 0) : n.T) * n.B * n.H; }
  int64_t words() const { return n.T * bfloat16_words(n.B, n.F, n.H); }
  int64_t factors() const {
    return n.T * bfloat16_factors(n.B, n.H, gru ? BFLOAT16_GRU_SAVED : BFLOAT16_LSTM_SAVED);
  }
  ffi::Error check_saved(int64_t words_given, int64_t factors_given) const {
    if (!units.kernels) return {ffi::Code::failed_precondition, units.why_not};
    if (words_given != members * words() || factors_given != members * factors())
      return {ffi::Code::invalid_argument, "forecaster's kernel: saved arrays of another size"};
    return {};
  }
};

ffi::Error forward(Array kernel, Array bias, Array new_bias, Array x, Array valid, Result hidden,
                   ffi::Result<uint32_t>* words, ffi::Result<uint16_t>* factors, bool gru,
                   bool last_only, std::string_view by) {
  const Bfloat16Call c(kernel, x, gru, by);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"bias", bias, c.bias()},
                            {"new bias", new_bias, c.new_bias()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()},
                            {"hidden", hidden, c.out(last_only)}}); error.failure())
    return error;
  if (auto error = c.check_saved(words ? words->size() : c.members * c.words(),
                                 factors ? factors->size() : c.members * c.factors());
      error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    c.cell().forward(
        c.n, {kernel.data() + m * c.weights(), bias.data() + m * c.bias(),
              new_bias.data() + m * c.new_bias()},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(),
         hidden.data() + m * c.out(last_only), last_only,
         words ? words->data() + m * c.words() : nullptr,
         factors ? factors->data() + m * c.factors() : nullptr});
  return {};
}

ffi::Error bfloat16_infer(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                        Result hidden, bool gru, bool last_only, std::string_view by) {
  return forward(kernel, bias, new_bias, x, valid, hidden, nullptr, nullptr, gru, last_only, by);
}

ffi::Error bfloat16_forward(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                          Result hidden, ffi::Result<uint32_t> words, ffi::Result<uint16_t> factors,
                          bool gru, bool last_only, std::string_view by) {
  return forward(kernel, bias, new_bias, x, valid, hidden, &words, &factors, gru, last_only, by);
}

ffi::Error bfloat16_backward(Array kernel, Array x, Array valid, Words words, Factors factors,
                           Array grad_hidden, Result grad_kernel, Result grad_bias,
                           Result grad_new_bias, Result grad_x, bool gru, bool last_only,
                           std::string_view by, bool want_x) {
  const Bfloat16Call c(kernel, x, gru, by);
  const int64_t coming = c.out(last_only);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()}, {"gradient", grad_hidden, coming},
                            {"gradient of the kernel", grad_kernel, c.weights()},
                            {"gradient of the bias", grad_bias, c.bias()},
                            {"gradient of the new bias", grad_new_bias, c.new_bias()},
                            {"gradient of the inputs", grad_x, c.inputs()}}); error.failure())
    return error;
  if (auto error = c.check_saved(words.size(), factors.size()); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    c.cell().backward(
        c.n, {kernel.data() + m * c.weights(), nullptr, nullptr},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(), nullptr, last_only,
         words.data() + m * c.words(), factors.data() + m * c.factors()},
        {grad_hidden.data() + m * coming, last_only,
         grad_kernel.data() + m * c.weights(), grad_bias.data() + m * c.bias(),
         grad_new_bias.data() + m * c.new_bias(),
         want_x ? grad_x.data() + m * c.inputs() : nullptr});
  return {};
}

}  // namespace

XLA_CALL(forecaster_bfloat16_infer, bfloat16_infer, "gru", "last_only", "by")
XLA_CALL(forecaster_bfloat16_forward, bfloat16_forward, "gru", "last_only", "by")
XLA_CALL(forecaster_bfloat16_backward, bfloat16_backward, "gru", "last_only", "by", "want_x")

// Return whether AVX-512 BF16 is faster than float32: on AMD's processors, not on Intel's.
extern "C" bool forecaster_prefers_avx512_bf16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

extern "C" const char* forecaster_why_not(const char* name) { return units(name).why_not; }

// The kernels as XLA custom calls; the instruction set is chosen when the library is loaded.
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "ffi_call.h"

#if defined(__x86_64__)
namespace avx512 { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
#endif
namespace plain { extern const Kernels kernels; }

namespace {


struct Choice {
  const char* name;
  const Kernels* kernels;
};

// FORECASTER_KERNEL=plain|avx2|avx512 limits the choice to that set; its other values name sets
// without float32 kernels of their own.
Choice choose() {
  const char* asked = std::getenv("FORECASTER_KERNEL");
  const char* sets[] = {"plain", "avx2", "avx512"};
  int most = 2;
  for (int set = 0; set < 3; set++)
    if (asked && !std::strcmp(asked, sets[set])) most = set;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (most >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return {"avx512", &avx512::kernels};
  if (most >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {"avx2", &avx2::kernels};
  return {"plain", &plain::kernels};
#elif defined(__aarch64__)
  return {"neon", &plain::kernels};  // every 64-bit ARM has NEON, and the compiler uses it
#else
  return {"plain", &plain::kernels};
#endif
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

// Forward pass; without cell and gates nothing is saved for the backward pass.
ffi::Error run_lstm(Array kernel, Array bias, Array x, Array valid, Result hidden, Result* cell,
                    Result* gates) {
  const Call c(kernel, x, 4);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"bias", bias, c.bias()},
                            {"inputs", x, c.inputs()}, {"valid", valid, c.rows()},
                            {"hidden", hidden, c.hidden()},
                            {"cell", cell ? *cell : hidden, cell ? c.saved() : c.hidden()},
                            {"gates", gates ? *gates : hidden,
                             gates ? 4 * c.saved() : c.hidden()}}); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    chosen().kernels->lstm.forward(
        c.n, {kernel.data() + m * c.weights(), bias.data() + m * c.bias(), nullptr},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(),
         hidden.data() + m * c.hidden(), of_member(cell, m, c.saved()),
         of_member(gates, m, 4 * c.saved())});
  return {};
}

ffi::Error lstm_infer(Array kernel, Array bias, Array x, Array valid, Result hidden) {
  return run_lstm(kernel, bias, x, valid, hidden, nullptr, nullptr);
}

ffi::Error lstm_forward(Array kernel, Array bias, Array x, Array valid, Result hidden, Result cell,
                        Result gates) {
  return run_lstm(kernel, bias, x, valid, hidden, &cell, &gates);
}

ffi::Error lstm_backward(Array kernel, Array x, Array valid, Array hidden, Array cell, Array gates,
                         Array grad_hidden, Result grad_kernel, Result grad_bias, Result grad_x,
                         bool last_only, bool want_x) {
  const Call c(kernel, x, 4);
  const int64_t coming = c.hidden() / (last_only ? std::max<int64_t>(1, c.n.T) : 1);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()}, {"hidden", hidden, c.hidden()},
                            {"cell", cell, c.saved()}, {"gates", gates, 4 * c.saved()},
                            {"gradient", grad_hidden, coming},
                            {"gradient of the kernel", grad_kernel, c.weights()},
                            {"gradient of the bias", grad_bias, c.bias()},
                            {"gradient of the inputs", grad_x, c.inputs()}}); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    chosen().kernels->lstm.backward(
        c.n, {kernel.data() + m * c.weights(), nullptr, nullptr},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(),
         hidden.data() + m * c.hidden(), cell.data() + m * c.saved(),
         gates.data() + m * 4 * c.saved()},
        {grad_hidden.data() + m * coming, last_only,
         grad_kernel.data() + m * c.weights(), grad_bias.data() + m * c.bias(),
         nullptr, want_x ? grad_x.data() + m * c.inputs() : nullptr});
  return {};
}

ffi::Error run_gru(Array kernel, Array bias, Array new_bias, Array x, Array valid, Result hidden,
                   Result* gates) {
  const Call c(kernel, x, 3);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"bias", bias, c.bias()},
                            {"new bias", new_bias, c.n.H}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()}, {"hidden", hidden, c.hidden()},
                            {"gates", gates ? *gates : hidden,
                             gates ? 4 * c.saved() : c.hidden()}}); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    chosen().kernels->gru.forward(
        c.n, {kernel.data() + m * c.weights(), bias.data() + m * c.bias(),
              new_bias.data() + m * c.n.H},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(),
         hidden.data() + m * c.hidden(), nullptr, of_member(gates, m, 4 * c.saved())});
  return {};
}

ffi::Error gru_infer(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                     Result hidden) {
  return run_gru(kernel, bias, new_bias, x, valid, hidden, nullptr);
}

ffi::Error gru_forward(Array kernel, Array bias, Array new_bias, Array x, Array valid,
                       Result hidden, Result gates) {
  return run_gru(kernel, bias, new_bias, x, valid, hidden, &gates);
}

ffi::Error gru_backward(Array kernel, Array x, Array valid, Array hidden, Array gates,
                        Array grad_hidden, Result grad_kernel, Result grad_bias,
                        Result grad_new_bias, Result grad_x, bool last_only, bool want_x) {
  const Call c(kernel, x, 3);
  const int64_t coming = c.hidden() / (last_only ? std::max<int64_t>(1, c.n.T) : 1);
  if (auto error = c.check({{"kernel", kernel, c.weights()}, {"inputs", x, c.inputs()},
                            {"valid", valid, c.rows()}, {"hidden", hidden, c.hidden()},
                            {"gates", gates, 4 * c.saved()}, {"gradient", grad_hidden, coming},
                            {"gradient of the kernel", grad_kernel, c.weights()},
                            {"gradient of the bias", grad_bias, c.bias()},
                            {"gradient of the new bias", grad_new_bias, c.n.H},
                            {"gradient of the inputs", grad_x, c.inputs()}}); error.failure())
    return error;
  for (int64_t m = 0; m < c.members; m++)
    chosen().kernels->gru.backward(
        c.n, {kernel.data() + m * c.weights(), nullptr, nullptr},
        {x.data() + m * c.inputs(), valid.data() + m * c.rows(),
         hidden.data() + m * c.hidden(), nullptr, gates.data() + m * 4 * c.saved()},
        {grad_hidden.data() + m * coming, last_only,
         grad_kernel.data() + m * c.weights(), grad_bias.data() + m * c.bias(),
         grad_new_bias.data() + m * c.n.H,
         want_x ? grad_x.data() + m * c.inputs() : nullptr});
  return {};
}

}  // namespace

XLA_CALL(forecaster_lstm_infer, lstm_infer)
XLA_CALL(forecaster_lstm_forward, lstm_forward)
XLA_CALL(forecaster_lstm_backward, lstm_backward, "last_only", "want_x")
XLA_CALL(forecaster_gru_infer, gru_infer)
XLA_CALL(forecaster_gru_forward, gru_forward)
XLA_CALL(forecaster_gru_backward, gru_backward, "last_only", "want_x")

extern "C" const char* forecaster_instructions() { return chosen().name; }

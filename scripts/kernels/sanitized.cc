// Runs the kernels on random shapes, on arrays of exactly the sizes that their callers
// give them, so that the address sanitizer sees every read or write beyond an end.
//   sanitized RUNS SEED
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels.h"
#if defined(__x86_64__) && defined(__linux__)
#include "tile_traps.h"
namespace amx_emulated { extern const Bfloat16Kernels kernels; }
#if defined(WITHOUT_AMX)
namespace amx = amx_emulated;
#else
namespace amx { extern const Bfloat16Kernels kernels; }
#endif
#if defined(WITHOUT_AVX512_BF16)
namespace avx512_bf16 = amx_emulated;
#else
namespace avx512_bf16 { extern const Bfloat16Kernels kernels; }
#endif
#endif

#if defined(__x86_64__)
namespace avx512 { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
#endif
namespace plain { extern const Kernels kernels; }

namespace {

struct Set {
  const char* name;
  const Kernels* kernels;
  bool runs;
};

std::vector<Set> sets() {
  std::vector<Set> all = {{"plain", &plain::kernels, true}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  all.push_back({"avx2", &avx2::kernels,
                 __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")});
  all.push_back({"avx512", &avx512::kernels,
                 __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl")});
#endif
  return all;
}

using Random = std::mt19937_64;

// An array of just so many floats on the heap, between the sanitizer's red zones.
struct Floats {
  std::unique_ptr<float[]> values;
  int64_t size;

  explicit Floats(int64_t size) : values(new float[size]), size(size) {
    for (int64_t i = 0; i < size; i++) values[i] = NAN;  // what is not written is noticed
  }
  Floats(int64_t size, Random& random, float scale) : Floats(size) {
    std::normal_distribution<float> normal(0, scale);
    for (int64_t i = 0; i < size; i++) values[i] = normal(random);
  }
  operator float*() { return values.get(); }
  bool finite() const {
    for (int64_t i = 0; i < size; i++)
      if (!std::isfinite(values[i])) return false;
    return true;
  }
};

int64_t between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// One forward and one backward pass; false when a result holds a number that was never written.
bool run(const Cell& cell, bool lstm, const Sizes& n, Random& random) {
  const int64_t gates = lstm ? 4 : 3, rows = n.T * n.B, saved = rows * saved_width(n.H);
  const float scale = 1 / std::sqrt(static_cast<float>(n.F + n.H));
  Floats kernel((n.F + n.H) * gates * n.H, random, scale), bias(gates * n.H, random, 1);
  Floats new_bias(n.H, random, 1), x(rows * n.F, random, 1), valid(rows);
  for (int64_t i = 0; i < rows; i++) valid[i] = between(random, 0, 4) > 0;
  const Weights weights = {kernel, bias, lstm ? nullptr : new_bias.values.get()};

#ifdef ONE_TOO_FEW  // to see that the sanitizer would notice
  Floats inferred(rows * n.H - 1), hidden(rows * n.H), state(lstm ? saved : 0), kept(4 * saved);
#else
  Floats inferred(rows * n.H), hidden(rows * n.H), state(lstm ? saved : 0), kept(4 * saved);
#endif
  cell.forward(n, weights, {x, valid, inferred, nullptr, nullptr});
  cell.forward(n, weights, {x, valid, hidden, lstm ? state.values.get() : nullptr, kept});

  const bool last_only = between(random, 0, 1), want_x = between(random, 0, 1);
  Floats coming(last_only ? n.B * n.H : rows * n.H, random, 1);
  Floats grad_kernel(kernel.size), grad_bias(bias.size), grad_new(n.H), grad_x(x.size);
  cell.backward(n, {kernel, nullptr, nullptr},
                {x, valid, hidden, lstm ? state.values.get() : nullptr, kept},
                {coming, last_only, grad_kernel, grad_bias,
                 lstm ? nullptr : grad_new.values.get(), want_x ? grad_x.values.get() : nullptr});
  return inferred.finite() && hidden.finite() && grad_kernel.finite() && grad_bias.finite() &&
         (lstm || grad_new.finite()) && (!want_x || grad_x.finite());
}

Sizes some_sizes(Random& random) {
  const int64_t widths[] = {1, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 50, 64, 70, 96, 128};
  return {between(random, 1, 9), between(random, 1, 19), between(random, 1, 9),
          widths[between(random, 0, std::size(widths) - 1)]};
}

#if defined(__x86_64__) && defined(__linux__)

// What a kernel of bfloat16 gave.
struct Bfloat16Results {
  Floats inferred, hidden, grad_kernel, grad_bias, grad_new, grad_x;

  bool finite() const {
    return inferred.finite() && hidden.finite() && grad_kernel.finite() && grad_bias.finite() &&
           grad_new.finite() && grad_x.finite();
  }
  bool equal(const Bfloat16Results& other) const {
    auto same = [](const Floats& a, const Floats& b) {
      return !std::memcmp(a.values.get(), b.values.get(), a.size * sizeof(float));
    };
    return same(inferred, other.inferred) && same(hidden, other.hidden) &&
           same(grad_kernel, other.grad_kernel) && same(grad_bias, other.grad_bias) &&
           same(grad_new, other.grad_new) && same(grad_x, other.grad_x);
  }
  // But for the rounding of a state that sums in another order now and then carry to its other side.
  bool near(const Bfloat16Results& other) const {
    auto close = [](const Floats& a, const Floats& b) {
      double apart = 0, norm = 1e-9;
      for (int64_t i = 0; i < a.size; i++) {
        apart += std::pow(double(a.values[i]) - b.values[i], 2);
        norm += std::pow(double(b.values[i]), 2);
      }
      return apart <= 1e-4 * norm;
    };
    return close(inferred, other.inferred) && close(hidden, other.hidden) &&
           close(grad_kernel, other.grad_kernel) && close(grad_bias, other.grad_bias) &&
           close(grad_new, other.grad_new) && close(grad_x, other.grad_x);
  }
};

Bfloat16Results run_one_bfloat16(const Bfloat16Cell& cell, bool lstm, const Sizes& n, uint64_t seed) {
  Random random(seed);
  const int64_t gates = lstm ? 4 : 3, rows = n.T * n.B;
  const float scale = 1 / std::sqrt(static_cast<float>(n.F + n.H));
  Floats kernel((n.F + n.H) * gates * n.H, random, scale), bias(gates * n.H, random, 1);
  Floats new_bias(lstm ? 0 : n.H, random, 1), x(rows * n.F, random, 1), valid(rows);
  for (int64_t i = 0; i < rows; i++) valid[i] = between(random, 0, 4) > 0;
  const bool last_only = between(random, 0, 1), want_x = between(random, 0, 1);
  const int64_t out = (last_only ? n.B : rows) * n.H;
  Floats coming(out, random, 1);
  const int64_t saved = lstm ? BFLOAT16_LSTM_SAVED : BFLOAT16_GRU_SAVED;
  std::unique_ptr<uint32_t[]> words(new uint32_t[n.T * bfloat16_words(n.B, n.F, n.H)]);
  std::unique_ptr<uint16_t[]> factors(new uint16_t[n.T * bfloat16_factors(n.B, n.H, saved)]);
  Bfloat16Results got = {Floats(out),       Floats(out),           Floats(kernel.size),
                       Floats(bias.size), Floats(new_bias.size), Floats(want_x ? x.size : 0)};
  const Weights weights = {kernel, bias, new_bias};
  cell.forward(n, weights, {x, valid, got.inferred, last_only, nullptr, nullptr});
  cell.forward(n, weights, {x, valid, got.hidden, last_only, words.get(), factors.get()});
  cell.backward(n, {kernel, nullptr, nullptr},
                {x, valid, nullptr, last_only, words.get(), factors.get()},
                {coming, last_only, got.grad_kernel, got.grad_bias, got.grad_new,
                 want_x ? got.grad_x.values.get() : nullptr});
  return got;
}

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5));
}

// Let this process use matrix units, if there are any. Without the system's permission, instructions
// that touch data of tiles trap, but LDTILECFG does not.
void ask_for_matrix_units() {
  constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  syscall(SYS_arch_prctl, request, tile_data);
}

// Matrix units, or their instructions' handler, against AVX-512, and AVX-512 BF16 beside it where the
// processor has it; false when they disagree.
bool run_bfloat16(int64_t runs, Random& random) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    std::printf("amx: not on this processor\n");
    return true;
  }
  tile_traps::install();
  ask_for_matrix_units();
  const bool pairs = has_avx512_bf16();
  for (int64_t number = 0; number < runs; number++) {
    const bool lstm = number % 2 == 0;
    Sizes n = some_sizes(random);
    if (between(random, 0, 3) == 0) n.B += 30;
    if (between(random, 0, 3) == 0) n.F += 30;
    const int64_t whole[] = {32, 64, 65, 97};
    if (between(random, 0, 3) == 0) n.B = whole[between(random, 0, 3)];
    const uint64_t seed = random();
    auto of = [&](const Bfloat16Kernels& kernels) {
      return run_one_bfloat16(lstm ? kernels.lstm : kernels.gru, lstm, n, seed);
    };
    auto wrong = [&](const char* name, const Bfloat16Results& got) {
      std::printf("%s, %s, T %ld B %ld F %ld H %ld: %s\n", name, lstm ? "lstm" : "gru", long(n.T),
                  long(n.B), long(n.F), long(n.H),
                  got.finite() ? "not what AVX-512 gives" : "a result was not written");
      return false;
    };
    const auto got = of(amx::kernels), emulated = of(amx_emulated::kernels);
    if (!got.finite() || !got.equal(emulated)) return wrong("amx", got);
    if (!pairs) continue;
    const auto paired = of(avx512_bf16::kernels);
    if (!paired.finite() || !paired.near(emulated)) return wrong("avx512_bf16", paired);
  }
  std::printf("amx: %ld runs, %s\n", long(runs),
              tile_traps::trapped ? "its instructions trapped" : "on matrix units");
  if (pairs)
    std::printf("avx512_bf16: %ld runs\n", long(runs));
  else
    std::printf("avx512_bf16: not on this processor\n");
  return true;
}

#else
bool run_bfloat16(int64_t, Random&) { return true; }
#endif

}  // namespace

int main(int count, char** words) {
  const int64_t runs = count > 1 ? std::atoll(words[1]) : 1000;
  Random random(count > 2 ? std::atoll(words[2]) : 0);
  for (const auto& set : sets()) {
    if (!set.runs) {
      std::printf("%s: not on this processor\n", set.name);
      continue;
    }
    for (int64_t number = 0; number < runs; number++) {
      const bool lstm = number % 2 == 0;
      const Sizes n = some_sizes(random);
      if (!run(lstm ? set.kernels->lstm : set.kernels->gru, lstm, n, random)) {
        std::printf("%s, %s, T %ld B %ld F %ld H %ld: a result was not written\n", set.name,
                    lstm ? "lstm" : "gru", long(n.T), long(n.B), long(n.F), long(n.H));
        return 1;
      }
    }
    std::printf("%s: %ld runs\n", set.name, long(runs));
  }
  return run_bfloat16(runs / 10, random) ? 0 : 1;
}

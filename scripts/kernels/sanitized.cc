// Runs the recurrence kernels on random shapes, on arrays of exactly the sizes that their callers
// give them, so that the address sanitizer sees every read or write beyond an end.
//   sanitized RUNS SEED
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "kernels.h"

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

}  // namespace

int main(int count, char** words) {
  const int64_t runs = count > 1 ? std::atoll(words[1]) : 1000;
  Random random(count > 2 ? std::atoll(words[2]) : 0);
  const int64_t widths[] = {1, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 50, 64, 70, 96, 128};
  for (const auto& set : sets()) {
    if (!set.runs) {
      std::printf("%s: not on this processor\n", set.name);
      continue;
    }
    for (int64_t number = 0; number < runs; number++) {
      const bool lstm = number % 2 == 0;
      const Sizes n = {between(random, 1, 9), between(random, 1, 19), between(random, 1, 9),
                       widths[between(random, 0, std::size(widths) - 1)]};
      if (!run(lstm ? set.kernels->lstm : set.kernels->gru, lstm, n, random)) {
        std::printf("%s, %s, T %ld B %ld F %ld H %ld: a result was not written\n", set.name,
                    lstm ? "lstm" : "gru", long(n.T), long(n.B), long(n.F), long(n.H));
        return 1;
      }
    }
    std::printf("%s: %ld runs\n", set.name, long(runs));
  }
}

// Arrays of the custom calls, and checks of their sizes.
#pragma once
#include <initializer_list>
#include <string>

#include "kernels.h"
#include "xla_ffi.h"

namespace {

using Array = ffi::Buffer<float>;
using Result = ffi::Result<float>;

struct Expected {
  const char* name;
  const Array& array;
  int64_t size;  // for one member
};

// All sizes, from inputs (members, T, B, F) and kernel (members, F + H, gates x H).
struct Call {
  Sizes n;
  int64_t members, gates;

  Call(const Array& kernel, const Array& x, int64_t gates) : gates(gates) {
    n = {x.from_end(3), x.from_end(2), x.from_end(1), kernel.from_end(1) / gates};
    const int64_t one = weights();
    members = one > 0 ? kernel.size() / one : 0;
  }
  int64_t weights() const { return (n.F + n.H) * gates * n.H; }
  int64_t bias() const { return gates * n.H; }
  int64_t inputs() const { return n.T * n.B * n.F; }
  int64_t rows() const { return n.T * n.B; }
  int64_t hidden() const { return n.T * n.B * n.H; }
  int64_t saved() const { return n.T * n.B * saved_width(n.H); }

  // Return an error for a wrong shape, which would be read beyond the array's end.
  ffi::Error check(std::initializer_list<Expected> all) const {
    for (const auto& one : all)
      if (one.array.size() != members * one.size)
        return {ffi::Code::invalid_argument,
                std::string("forecaster's kernel: ") + one.name + ": expected " +
                    std::to_string(members) + " x " + std::to_string(one.size) +
                    " numbers, got " + std::to_string(one.array.size())};
    return {};
  }
};

float* of_member(const Result* result, int64_t m, int64_t size) {
  return result ? result->data() + m * size : nullptr;
}

}  // namespace

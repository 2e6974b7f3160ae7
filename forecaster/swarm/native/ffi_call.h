// Arrays of the custom calls, and checks of their sizes.
#pragma once
#include <initializer_list>
#include <string>

#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Array>;

int64_t from_end(const Array& array, int64_t axis) {
  const auto sizes = array.dimensions();
  const auto rank = static_cast<int64_t>(sizes.size());
  return axis <= rank ? static_cast<int64_t>(sizes[rank - axis]) : 0;
}

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
    n = {from_end(x, 3), from_end(x, 2), from_end(x, 1), from_end(kernel, 1) / gates};
    const int64_t one = weights();
    members = one > 0 ? static_cast<int64_t>(kernel.element_count()) / one : 0;
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
      if (static_cast<int64_t>(one.array.element_count()) != members * one.size)
        return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                          std::string("forecaster's kernel: ") + one.name + ": expected " +
                              std::to_string(members) + " x " + std::to_string(one.size) +
                              " numbers, got " + std::to_string(one.array.element_count()));
    return ffi::Error::Success();
  }
};

float* of_member(Result* result, int64_t m, int64_t size) {
  return result ? (*result)->typed_data() + m * size : nullptr;
}

}  // namespace

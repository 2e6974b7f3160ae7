// Threefry-2x32 with 20 rounds, the hash of JAX's random keys.
// Salmon et al. (2011), doi:10.1145/2063384.2063405.
#pragma once
#include "kernels.h"

namespace ISA_NAME {

struct Counter {
  uint32_t left, right;
};

static inline Counter threefry_of(uint32_t one, uint32_t two, Counter c) {
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t key[3] = {one, two, one ^ two ^ 0x1BD11BDA};
  c = {c.left + one, c.right + two};
  for (int group = 0; group < 5; group++) {
    for (int by : rotations[group % 2]) {
      c.left += c.right;
      c.right = (c.right << by | c.right >> (32 - by)) ^ c.left;
    }
    c.left += key[(group + 1) % 3];
    c.right += key[(group + 2) % 3] + group + 1;
  }
  return c;
}

static void threefry(const Hash& h) {
  uint32_t *__restrict left = h.out_left, *__restrict right = h.out_right;
  if (h.paired) {
    for (int64_t i = 0; i < h.keys; i++) {
      const Counter c = threefry_of(h.one[i], h.two[i], {h.left[i], h.right[i]});
      left[i] = c.left, right[i] = c.right;
    }
    return;
  }
  for (int64_t k = 0; k < h.keys; k++, left += h.counters, right += h.counters) {
    const uint32_t one = h.one[k], two = h.two[k];
    for (int64_t i = 0; i < h.counters; i++) {
      const Counter c = threefry_of(one, two, {h.left[i], h.right[i]});
      left[i] = c.left, right[i] = c.right;
    }
  }
}

}  // namespace ISA_NAME

// Runs the instructions of matrix units (AMX) on processors that have none: each is an illegal
// instruction there, whose handler does what the manual says, and goes on behind it.
//
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TILELOADD,
// TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS.
#pragma once
#include <signal.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tile_traps {

struct State {
  bool configured = false;
  uint8_t rows[8] = {};
  uint16_t bytes[8] = {};
  uint32_t at[8][16][16] = {};
};
inline State state;
inline long trapped = 0;

inline void expect(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "tile instruction: %s\n", what);
  std::abort();
}

inline uint64_t general(const greg_t* registers, int number) {
  static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(registers[places[number]]);
}

// An operand in memory, (base + index * scale + displacement), where tiles stride by the index.
struct Memory {
  char* base;
  int64_t stride;
  int length;  // bytes of the instruction after its ModRM
};
inline Memory memory_of(const uint8_t* modrm, int extend_x, int extend_b, const greg_t* registers) {
  const int mod = *modrm >> 6, rm = *modrm & 7;
  const uint8_t* next = modrm + 1;
  uint64_t base = 0;
  int64_t stride = 0;
  bool has_base = true;
  if (rm == 4) {
    const uint8_t sib = *next++;
    const int index = ((sib >> 3) & 7) | extend_x, from = (sib & 7) | extend_b;
    has_base = !(mod == 0 && (sib & 7) == 5);
    if (index != 4) stride = static_cast<int64_t>(general(registers, index)) << (sib >> 6);
    if (has_base) base = general(registers, from);
  } else {
    expect(!(mod == 0 && rm == 5), "addresses from the instruction pointer are not decoded");
    base = general(registers, rm | extend_b);
  }
  int32_t displacement = 0;
  if (mod == 1) displacement = static_cast<int8_t>(*next);
  if (mod == 2 || !has_base) std::memcpy(&displacement, next, 4);
  next += mod == 1 ? 1 : mod == 2 || !has_base ? 4 : 0;
  return {reinterpret_cast<char*>(base + displacement), stride, static_cast<int>(next - modrm - 1)};
}

inline float half_of(uint32_t word, bool upper) {
  const uint32_t bits = upper ? word & 0xffff0000u : word << 16;
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

inline void dot_products(int c, int a, int b) {
  State& s = state;
  expect(s.rows[a] == s.rows[c] && s.bytes[a] == 4 * s.rows[b] && s.bytes[b] == s.bytes[c],
         "shapes of a product do not fit");
  expect(c != a && c != b && a != b, "a product's tiles are not three");
  for (int m = 0; m < s.rows[c]; m++)
    for (int n = 0; n < s.bytes[c] / 4; n++) {
      float low = 0, high = 0, sum;
      for (int k = 0; k < s.bytes[a] / 4; k++) {
        low = std::fma(half_of(s.at[a][m][k], false), half_of(s.at[b][k][n], false), low);
        high = std::fma(half_of(s.at[a][m][k], true), half_of(s.at[b][k][n], true), high);
      }
      std::memcpy(&sum, &s.at[c][m][n], 4);
      sum += low + high;
      std::memcpy(&s.at[c][m][n], &sum, 4);
    }
}

inline void configure(const char* from) {
  uint8_t shapes[64];
  std::memcpy(shapes, from, 64);
  expect(shapes[0] == 1, "palette is not 1");
  for (int k = 1; k < 16; k++) expect(shapes[k] == 0, "reserved bytes are not zero");
  for (int k = 0; k < 8; k++) {
    std::memcpy(&state.bytes[k], shapes + 16 + 2 * k, 2);
    state.rows[k] = shapes[48 + k];
    expect(state.rows[k] <= 16 && state.bytes[k] <= 64, "a tile is too large");
  }
  for (int k = 32; k < 48; k++) expect(shapes[k] == 0, "there are 8 tiles");
  for (int k = 56; k < 64; k++) expect(shapes[k] == 0, "there are 8 tiles");
  std::memset(state.at, 0, sizeof state.at);
  state.configured = true;
}

inline void move_tile(int tile, const Memory& memory, bool load) {
  expect(state.rows[tile] > 0, "the tile has no shape");
  for (int row = 0; row < state.rows[tile]; row++) {
    char* there = memory.base + row * memory.stride;
    if (load)
      std::memcpy(state.at[tile][row], there, state.bytes[tile]);
    else
      std::memcpy(there, state.at[tile][row], state.bytes[tile]);
  }
}

// Does the instruction; returns its length, 0 for another one.
inline int emulate(const uint8_t* code, const greg_t* registers) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84)) return 0;  // 0F38, W0, 128
  const int extend_x = code[1] & 0x40 ? 0 : 8, extend_b = code[1] & 0x20 ? 0 : 8;
  const int prefix = code[2] & 3, third = ~(code[2] >> 3) & 15, modrm = code[4];
  const int reg = (modrm >> 3) & 7, rm = modrm & 7;
  const bool in_memory = modrm >> 6 != 3;
  if (code[3] != 0x49) expect(state.configured, "used before LDTILECFG");
  if (code[3] == 0x49 && prefix == 0 && !in_memory) {
    expect(state.configured, "TILERELEASE without LDTILECFG");
    state.configured = false;
    return 5;
  }
  if (code[3] == 0x49 && prefix == 3 && !in_memory) {
    expect(state.configured, "TILEZERO before LDTILECFG");
    std::memset(state.at[reg], 0, sizeof state.at[reg]);
    return 5;
  }
  if (code[3] == 0x5c && prefix == 2 && !in_memory) {
    dot_products(reg, rm, third);
    return 5;
  }
  if (!in_memory || (code[3] != 0x49 && code[3] != 0x4b)) return 0;
  const Memory memory = memory_of(code + 4, extend_x, extend_b, registers);
  if (code[3] == 0x49 && prefix == 0)
    configure(memory.base);
  else if (code[3] == 0x4b && (prefix == 3 || prefix == 2))
    move_tile(reg, memory, prefix == 3);
  else
    return 0;
  return 5 + memory.length;
}

inline void handle(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int length = emulate(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers);
  expect(length > 0, "an illegal instruction of another kind");
  registers[REG_RIP] += length;
  trapped++;
}

inline void install() {
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  expect(!sigaction(SIGILL, &action, nullptr), "the handler cannot be installed");
}

}  // namespace tile_traps

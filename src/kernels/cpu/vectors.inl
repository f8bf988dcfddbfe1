// The functions of vectors.h, for the instruction set whose file includes this: vectors_avx2.cpp and
// so on define kLanes, the 32-bit lanes of a register, and multiply_add(a, b, c) = a * b + c with one
// rounding. The rest is plain arithmetic on vectors, which compilers know (GCC manual, "Vector
// Extensions"). Nothing here may be visible outside of the file: it is compiled for processors that
// not every user has.

namespace lagoon::kernels::cpu {
namespace {

#define LAGOON_INLINE inline __attribute__((always_inline))

using Words = uint32_t __attribute__((vector_size(4 * kLanes)));

LAGOON_INLINE Floats load(const float* from) {
  Floats to;
  __builtin_memcpy(&to, from, sizeof to);
  return to;
}
LAGOON_INLINE void store(float* to, Floats from) {
  __builtin_memcpy(to, &from, sizeof from);
}
LAGOON_INLINE Floats broadcast(float x) {
  return x - Floats{};
}
// Where one is a NaN, the second.
LAGOON_INLINE Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}
LAGOON_INLINE Floats smaller(Floats a, Floats b) {
  return a < b ? a : b;
}

LAGOON_INLINE Words load_words(const std::byte* from) {
  Words to;
  __builtin_memcpy(&to, from, sizeof to);
  return to;
}
LAGOON_INLINE Floats as_floats(Words bits) {
  return reinterpret_cast<Floats>(bits);
}
LAGOON_INLINE Words as_words(Floats x) {
  return reinterpret_cast<Words>(x);
}

// numeric::round_to_bfloat16 of each lane.
LAGOON_INLINE Floats round_to_bfloat16(Floats x) {
  const Words bits = as_words(x);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const Words nan = (bits | 0x400000u) & 0xffff0000u;
  return x == x ? as_floats(rounded) : as_floats(nan);
}
LAGOON_INLINE Floats rounded_if(bool round, Floats x) {
  return round ? round_to_bfloat16(x) : x;
}

// Element kIndex of those that fill each 32-bit word.
template <Element kElement, int kIndex>
LAGOON_INLINE Floats element_of(Words words) {
  if constexpr (kElement == Element::kFloat32) {
    return as_floats(words);
  } else if constexpr (kElement == Element::kBFloat16) {
    return as_floats(kIndex == 0 ? words << 16 : words & 0xffff0000u);
  } else {
    const Words byte = words << (24 - 8 * kIndex);
    // Exponent and mantissa where FP32 has them. A subnormal, 2^-6 m / 8, gets an exponent and with it
    // a leading one: 2^-7 (1 + m / 8).
    const Words magnitude = (byte & 0x7f000000u) >> 4;
    const Floats normal = as_floats(magnitude + (uint32_t{120} << 23));
    const Floats subnormal = normal + normal - 0x1p-6f;
    const Floats value = magnitude < (uint32_t{1} << 23) ? subnormal : normal;
    return as_floats(as_words(value) | (byte & 0x80000000u));
  }
}

// Sums are kept in 16 parts whatever the width of a register.
constexpr int kParts = 16;
constexpr int64_t kVectors = kParts / kLanes;
struct Parts {
  Floats v[kVectors];
};

// Part i gets part i + 8, then i + 4, 2, 1.
LAGOON_INLINE float sum_of(const Parts& parts) {
  float all[kParts];
  for (int v = 0; v < kVectors; ++v) store(all + v * kLanes, parts.v[v]);
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) all[i] += all[i + half];
  }
  return all[0];
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two pieces (Cody and Waite), e^r
// by a polynomial (the coefficients of expf in Moshier's Cephes library).
LAGOON_INLINE Floats exponential(Floats x) {
  const Floats low = broadcast(-87.33f);
  const Floats clamped = smaller(broadcast(88.37f), larger(low, x));
  const Floats magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = multiply_add(clamped, broadcast(1.44269504f), magic);
  const Floats n = shifted - magic;
  Floats r = multiply_add(n, broadcast(-0.693359375f), clamped);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                        5.0000001201e-1f}) {
    p = multiply_add(p, r, broadcast(c));
  }
  p = multiply_add(r * r, p, r + 1.0f);
  const Floats scaled = as_floats(as_words(p) + (as_words(shifted) << 23));
  const Floats result = x < low ? Floats{} : scaled;
  return x == x ? result : x;
}

// log(1 + u) for 0 <= u <= 1: 2 artanh(s) with s = u / (2 + u), by its series.
LAGOON_INLINE Floats log1p_unit(Floats u) {
  const Floats s = u / (u + 2.0f);
  const Floats square = s * s;
  Floats p = broadcast(2.0f / 17);
  for (const int n : {15, 13, 11, 9, 7, 5, 3}) {
    p = multiply_add(p, square, broadcast(2.0f / static_cast<float>(n)));
  }
  return multiply_add(p, square * s, s + s);
}

// kLanes values from `first` of an array of n, zeros behind its end.
LAGOON_INLINE Floats load_up_to(const float* x, int64_t first, int64_t n) {
  if (first + kLanes <= n) return load(x + first);
  float rest[kLanes] = {};
  for (int64_t j = first; j < n; ++j) rest[j - first] = x[j];
  return load(rest);
}
LAGOON_INLINE void store_up_to(float* out, int64_t first, int64_t n, Floats x) {
  if (first + kLanes <= n) {
    store(out + first, x);
    return;
  }
  float rest[kLanes];
  store(rest, x);
  for (int64_t j = first; j < n; ++j) out[j] = rest[j - first];
}

// out_i = body(i, x_i), a vector at a time; out may be x.
template <typename Body>
LAGOON_INLINE void transform(const float* x, int64_t n, float* out, const Body& body) {
  for (int64_t i = 0; i < n; i += kLanes) store_up_to(out, i, n, body(i, load_up_to(x, i, n)));
}

LAGOON_INLINE float norm_factor(const float* x, int64_t n, float epsilon) {
  Parts squares{};
  for (int64_t i = 0; i < n; i += kParts) {
    for (int v = 0; v < kVectors; ++v) {
      const Floats value = load_up_to(x, i + v * kLanes, n);
      squares.v[v] = multiply_add(value, value, squares.v[v]);
    }
  }
  return 1.0f / __builtin_sqrtf(sum_of(squares) / static_cast<float>(n) + epsilon);
}

void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, bool round,
              float* out) {
  const float factor = norm_factor(x, n, epsilon);
  transform(x, n, out, [&](int64_t i, Floats value) __attribute__((always_inline)) {
    return rounded_if(round, value * factor * load_up_to(weight, i, n));
  });
}

void norm_and_rotate(const float* head, const float* weight, int64_t n, float epsilon,
                     const float* cosines, const float* sines, int64_t pairs, bool round,
                     float* out) {
  rms_norm(head, weight, n, epsilon, false, out);
  for (int64_t j = 0; j < pairs; j += kLanes) {
    const Floats a = load_up_to(out, j, pairs);
    const Floats b = load_up_to(out + pairs, j, pairs);
    const Floats c = load_up_to(cosines, j, pairs);
    const Floats s = load_up_to(sines, j, pairs);
    store_up_to(out, j, pairs, a * c - b * s);
    store_up_to(out + pairs, j, pairs, b * c + a * s);
  }
  if (!round) return;
  transform(out, n, out, [](int64_t, Floats x) __attribute__((always_inline)) {
    return round_to_bfloat16(x);
  });
}

void swiglu(float* gate, const float* up, int64_t n, bool round) {
  transform(gate, n, gate, [&](int64_t i, Floats x) __attribute__((always_inline)) {
    return rounded_if(round, x / (exponential(-x) + 1.0f) * load_up_to(up, i, n));
  });
}

void softplus(const float* x, int64_t n, float* out) {
  transform(x, n, out, [](int64_t, Floats value) __attribute__((always_inline)) {
    const Floats magnitude = larger(value, -value);
    return larger(Floats{}, value) + log1p_unit(exponential(-magnitude));
  });
}

void sigmoid(const float* x, int64_t n, float* out) {
  transform(x, n, out, [](int64_t, Floats value) __attribute__((always_inline)) {
    return 1.0f / (exponential(-value) + 1.0f);
  });
}

void exponentials(const float* x, int64_t n, float* out) {
  transform(x, n, out, [](int64_t, Floats value) __attribute__((always_inline)) {
    return exponential(value);
  });
}

void scale(float* x, float factor, int64_t n, bool round) {
  transform(x, n, x, [&](int64_t, Floats value) __attribute__((always_inline)) {
    return rounded_if(round, value * factor);
  });
}

void scale_each(float* x, const float* factors, int64_t n, bool round) {
  transform(x, n, x, [&](int64_t i, Floats value) __attribute__((always_inline)) {
    return rounded_if(round, value * load_up_to(factors, i, n));
  });
}

void add_scaled(float* out, float factor, const float* x, int64_t n) {
  transform(out, n, out, [&](int64_t i, Floats sum) __attribute__((always_inline)) {
    return multiply_add(broadcast(factor), load_up_to(x, i, n), sum);
  });
}

void add(float* out, const float* x, int64_t n) {
  transform(out, n, out, [&](int64_t i, Floats sum) __attribute__((always_inline)) {
    return sum + load_up_to(x, i, n);
  });
}

int64_t argmax(const float* x, int64_t n) {
  constexpr int64_t kChunk = 256;
  float best = -__builtin_inff();
  int64_t chunk_of_best = -1;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t count = n - first < kChunk ? n - first : kChunk;
    Floats largest = broadcast(-__builtin_inff());
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) largest = larger(load(x + first + i), largest);
    float lanes[kLanes];
    store(lanes, largest);
    float of_chunk = lanes[0];
    for (const float lane : lanes) of_chunk = lane > of_chunk ? lane : of_chunk;
    for (; i < count; ++i) of_chunk = x[first + i] > of_chunk ? x[first + i] : of_chunk;
    if (of_chunk > best) {
      best = of_chunk;
      chunk_of_best = first;
    }
  }
  if (chunk_of_best < 0) return 0;
  int64_t found = chunk_of_best;
  while (x[found] != best) ++found;
  return found;
}

}  // namespace
}  // namespace lagoon::kernels::cpu

// The products of every instruction set, written in its primitives: a struct that its file defines
// (product_portable.cpp says what each does) before it includes this one. The sums are those of
// matrix.h, so all sets have the same bits, but for those of the BF16 dot products.
//
// Few rows: weights go from memory through registers to the sums of all rows. Many rows: the
// weights of a block of a panel are decoded once, into the first-level cache.

#include "kernels/cpu/panel.inl"

namespace lagoon::kernels::cpu {
namespace {

template <typename Isa>
LAGOON_INLINE PanelVectors<Isa> block_scale(const Product& product, int64_t panel,
                                            const Block& block) {
  if (product.block_scales == nullptr) return all<Isa>(1);
  const int64_t blocks = (product.columns + kBlockColumns - 1) / kBlockColumns;
  return all<Isa>(product.block_scales[panel * blocks + block.index]);
}

// The outputs of a panel for row r of y from their totals.
template <typename Isa, Format kFormat>
LAGOON_INLINE void write_outputs(const Product& product, int64_t panel, int64_t r,
                                 PanelVectors<Isa> totals) {
  if constexpr (kFormat == Format::kNVFP4) {
    for (int v = 0; v < totals.kVectors; ++v) {
      totals.v[v] = Isa::divide(totals.v[v], Isa::broadcast(product.divisor));
    }
  }
  float* y = product.y + r * product.y_stride + panel * kPanelRows;
  const int64_t outputs = product.rows - panel * kPanelRows;
  if (outputs >= kPanelRows) {
    store_panel<Isa>(y, totals);
    return;
  }
  float some[kPanelRows];
  store_panel<Isa>(some, totals);
  for (int64_t n = 0; n < outputs; ++n) y[n] = some[n];
}

// Rows [row, row + kRows) and kPanels panels with all sums in registers.
template <typename Isa, typename Steps, Format kFormat, int kRows, int kPanels>
void multiply_few(const Product& product, int64_t panel, int64_t row) {
  constexpr bool kScaled = kFormat == Format::kNVFP4;  // group by group
  constexpr int64_t kChunkBytes = code_bytes(kFormat, kChunkColumns);
  // Few panels are few streams of memory: those of the next pass are asked for meanwhile. One row
  // takes so many panels of large numbers at a time that the next would push them out of the cache.
  constexpr bool kFetchAhead = kRows > 1 || kFormat == Format::kNVFP4 || kFormat == Format::kFP8;
  PanelVectors<Isa> totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) totals[r][p] = all<Isa>(0);
  }
  const std::byte* data = product.data + panel * product.panel_bytes;
  for_each_block<kFormat>(product, [&](const Block& block) __attribute__((always_inline)) {
    const typename Steps::X* x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = Steps::row(product, row + r, block);
    PanelVectors<Isa> sums[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) sums[r][p] = all<Isa>(0);
    }
    const std::byte* scales = data + block.offset;
    const std::byte* codes = scales + scale_bytes(kFormat, block.columns);
    for (int64_t group = 0; group < block.columns; group += kGroupColumns) {
      PanelVectors<Isa> chains[kRows][kPanels];
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) chains[r][p] = kScaled ? all<Isa>(0) : sums[r][p];
      }
      for (int chunk = 0; chunk < kGroupColumns; chunk += kChunkColumns) {
        for (int p = 0; p < kPanels; ++p) {
          if constexpr (kFetchAhead) {
            for (int64_t line = 0; line < kChunkBytes; line += 64) {
              __builtin_prefetch(codes + (p + kPanels) * product.panel_bytes + line);
            }
          }
          use_chunk<Isa, Steps, kFormat>(
              codes + p * product.panel_bytes,
              [&](int i, const typename Steps::Weights& w) __attribute__((always_inline)) {
                for (int r = 0; r < kRows; ++r) {
                  Steps::add(w, x[r][chunk / 2 * Steps::kSteps + i], chains[r][p]);
                }
              });
        }
        codes += kChunkBytes;
      }
      for (int r = 0; r < kRows; ++r) x[r] += kGroupColumns / 2 * Steps::kSteps;
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kScaled) {
          const PanelVectors<Isa> scale = group_scales<Isa>(scales + p * product.panel_bytes);
          for (int r = 0; r < kRows; ++r) multiply_add<Isa>(scale, chains[r][p], sums[r][p]);
        } else {
          for (int r = 0; r < kRows; ++r) sums[r][p] = chains[r][p];
        }
      }
      scales += kPanelRows;
    }
    for (int p = 0; p < kPanels; ++p) {
      const PanelVectors<Isa> scale = block_scale<Isa>(product, panel + p, block);
      for (int r = 0; r < kRows; ++r) multiply_add<Isa>(scale, sums[r][p], totals[r][p]);
    }
  });
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      write_outputs<Isa, kFormat>(product, panel + p, row + r, totals[r][p]);
    }
  }
}

// Rows [row, row + rows) for rows <= kRows.
template <typename Isa, typename Steps, Format kFormat, int kRows, int kPanels>
void multiply_few_or_fewer(const Product& product, int64_t panel, int64_t row, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      multiply_few<Isa, Steps, kFormat, kRows, kPanels>(product, panel, row);
    } else {
      multiply_few_or_fewer<Isa, Steps, kFormat, kRows - 1, kPanels>(product, panel, row, rows);
    }
  }
}

// Panels [panel, panel_end), kPanels a pass, then the rest by halves of it.
template <typename Isa, typename Steps, Format kFormat, int kRows, int kPanels>
void multiply_panels(const Product& product, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    multiply_few<Isa, Steps, kFormat, kRows, kPanels>(product, panel, 0);
  }
  if constexpr (kPanels > 1) {
    multiply_panels<Isa, Steps, kFormat, kRows, kPanels / 2>(product, panel, panel_end);
  }
}

// Whether weights lie as they are multiplied, so that there is nothing to decode.
template <typename Steps, Format kFormat>
constexpr bool kAsStored =
    kFormat == Format::kFloat32 || (kFormat == Format::kBFloat16 && Steps::kSteps == 1);

// A block of one panel, decoded: the weights of its steps, and the scales of kNVFP4.
template <typename Isa, typename Steps>
struct Decoded {
  alignas(64) typename Steps::X weights[kBlockColumns / 2 * Steps::kSteps * kPanelRows];
  alignas(64) float scales[kBlockColumns / kGroupColumns * kPanelRows];
};

template <typename Isa, typename Steps, Format kFormat>
LAGOON_INLINE void decode(const std::byte* data, const Block& block, Decoded<Isa, Steps>& decoded) {
  const std::byte* codes = data + scale_bytes(kFormat, block.columns);
  typename Steps::X* to = decoded.weights;
  for (int64_t k = 0; k < block.columns; k += kChunkColumns) {
    use_chunk<Isa, Steps, kFormat>(
        codes, [&](int i, const typename Steps::Weights& w)
                   __attribute__((always_inline)) { Steps::store(to + i * kPanelRows, w); });
    codes += code_bytes(kFormat, kChunkColumns);
    to += kChunkColumns / 2 * Steps::kSteps * kPanelRows;
  }
  if constexpr (kFormat == Format::kNVFP4) {
    for (int64_t i = 0; i < block.columns / kGroupColumns * kPanelRows; i += kPanelRows) {
      store_panel<Isa>(decoded.scales + i, group_scales<Isa>(data + i));
    }
  }
}

// What multiply_decoded() reads of a block of a panel; those of further panels lie `panel_step` and
// `scale_step` on.
template <typename Steps>
struct Weights {
  const typename Steps::X* weights;
  int64_t panel_step;
  const float* scales;
  int64_t scale_step;
};

// totals [kRows, kPanels, 16] += the block times rows [row, row + kRows) of x.
template <typename Isa, typename Steps, bool kScaled, int kRows, int kPanels>
void multiply_decoded(const Product& product, const Weights<Steps>& decoded, const Block& block,
                      const PanelVectors<Isa>* scale, int64_t row, float* totals) {
  const typename Steps::X* x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = Steps::row(product, row + r, block);
  PanelVectors<Isa> chains[kRows][kPanels];
  PanelVectors<Isa> sums[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      chains[r][p] = all<Isa>(0);
      if constexpr (kScaled) sums[r][p] = all<Isa>(0);
    }
  }
  const typename Steps::X* from = decoded.weights;
  const float* scales = decoded.scales;
  const int64_t steps = block.columns / 2 * Steps::kSteps;
  for (int64_t i = 0; i < steps;) {
    const int64_t end = kScaled ? i + kGroupColumns / 2 * Steps::kSteps : steps;
    for (; i < end; ++i, from += kPanelRows) {
      typename Steps::Weights w[kPanels];
      for (int p = 0; p < kPanels; ++p) w[p] = Steps::load(from + p * decoded.panel_step);
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) Steps::add(w[p], x[r][i], chains[r][p]);
      }
    }
    if constexpr (kScaled) {
      for (int p = 0; p < kPanels; ++p) {
        const PanelVectors<Isa> group = load_panel<Isa>(scales + p * decoded.scale_step);
        for (int r = 0; r < kRows; ++r) {
          multiply_add<Isa>(group, chains[r][p], sums[r][p]);
          chains[r][p] = all<Isa>(0);
        }
      }
      scales += kPanelRows;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* at = totals + (r * kPanels + p) * kPanelRows;
      PanelVectors<Isa> total = load_panel<Isa>(at);
      multiply_add<Isa>(scale[p], kScaled ? sums[r][p] : chains[r][p], total);
      store_panel<Isa>(at, total);
    }
  }
}

// The same for rows <= kRows.
template <typename Isa, typename Steps, bool kScaled, int kRows, int kPanels>
void multiply_decoded_rows(const Product& product, const Weights<Steps>& decoded,
                           const Block& block, const PanelVectors<Isa>* scale, int64_t row,
                           int64_t rows, float* totals) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      multiply_decoded<Isa, Steps, kScaled, kRows, kPanels>(product, decoded, block, scale, row,
                                                            totals);
    } else {
      multiply_decoded_rows<Isa, Steps, kScaled, kRows - 1, kPanels>(product, decoded, block, scale,
                                                                     row, rows, totals);
    }
  }
}

// Rows whose totals of one panel stay in the first-level cache: weights are read once for so many.
constexpr int64_t kRowsAtOnce = 96;

// Rows [first, first + rows) of kPanels panels; `totals` and `decoded` [kPanels] are scratch.
template <typename Isa, typename Steps, Format kFormat, int kPanels>
LAGOON_INLINE void multiply_many(const Product& product, int64_t first, int64_t rows, int64_t panel,
                                 float* totals, Decoded<Isa, Steps>* decoded) {
  constexpr bool kScaled = kFormat == Format::kNVFP4;
  // As many sums as registers hold; with scales there are two for each output.
  constexpr int kRows = kPanels == 1 ? Isa::kDecodedRows
                        : kScaled    ? Isa::kDecodedRows / 2
                                     : Isa::kDecodedRows * 2 / 3;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(typename Steps::X));
  const int64_t parts = (rows + kRows - 1) / kRows;
  const std::byte* data = product.data + panel * product.panel_bytes;
  for (int64_t i = 0; i < rows * kPanels * kPanelRows; ++i) totals[i] = 0;
  for_each_block<kFormat>(product, [&](const Block& block) __attribute__((always_inline)) {
    Weights<Steps> weights;
    if constexpr (kAsStored<Steps, kFormat>) {
      weights = {reinterpret_cast<const typename Steps::X*>(data + block.offset),
                 product.panel_bytes / kBytes, nullptr, 0};
    } else {
      for (int p = 0; p < kPanels; ++p) {
        decode<Isa, Steps, kFormat>(data + p * product.panel_bytes + block.offset, block,
                                    decoded[p]);
      }
      weights = {decoded->weights, sizeof *decoded / kBytes, decoded->scales,
                 sizeof *decoded / sizeof(float)};
    }
    PanelVectors<Isa> scale[kPanels];
    for (int p = 0; p < kPanels; ++p) scale[p] = block_scale<Isa>(product, panel + p, block);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = rows * part / parts;
      const int64_t end = rows * (part + 1) / parts;
      multiply_decoded_rows<Isa, Steps, kScaled, kRows, kPanels>(
          product, weights, block, scale, first + begin, end - begin,
          totals + begin * kPanels * kPanelRows);
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      write_outputs<Isa, kFormat>(product, panel + p, first + r,
                                  load_panel<Isa>(totals + (r * kPanels + p) * kPanelRows));
    }
  }
}

template <typename Isa, typename Steps, Format kFormat>
void multiply_many_rows(const Product& product) {
  // Two panels use a value of x twice that is spread over a vector once, where registers are wide
  // enough for the sums of both.
  constexpr int kPanels = Isa::kLanes == kPanelRows ? 2 : 1;
  alignas(64) float totals[kRowsAtOnce * kPanels * kPanelRows];
  Decoded<Isa, Steps> decoded[kPanels];
  for (int64_t first = 0; first < product.m; first += kRowsAtOnce) {
    const int64_t rows = product.m - first < kRowsAtOnce ? product.m - first : kRowsAtOnce;
    int64_t panel = product.panel_begin;
    for (; panel + kPanels <= product.panel_end; panel += kPanels) {
      multiply_many<Isa, Steps, kFormat, kPanels>(product, first, rows, panel, totals, decoded);
    }
    for (; panel < product.panel_end; ++panel) {
      multiply_many<Isa, Steps, kFormat, 1>(product, first, rows, panel, totals, decoded);
    }
  }
}

template <typename Isa, typename Steps, Format kFormat, int kRows>
void multiply_rows(const Product& product) {
  if constexpr (kRows == 0) {
    multiply_many_rows<Isa, Steps, kFormat>(product);
  } else if (product.m == kRows) {
    multiply_panels<Isa, Steps, kFormat, kRows, Isa::panels_with(kFormat, kRows)>(
        product, product.panel_begin, product.panel_end);
  } else {
    multiply_rows<Isa, Steps, kFormat, kRows - 1>(product);
  }
}

template <typename Isa, typename Steps, Format kFormat>
void multiply_format(const Product& product) {
  if (product.m > Isa::kFewRows && product.m <= 2 * Isa::kFewRows) {
    // Two passes over a few panels, which the second finds in a cache.
    const int half = product.m / 2;
    for (int64_t panel = product.panel_begin; panel < product.panel_end; ++panel) {
      multiply_few_or_fewer<Isa, Steps, kFormat, Isa::kFewRows, 1>(product, panel, 0, half);
      multiply_few_or_fewer<Isa, Steps, kFormat, Isa::kFewRows, 1>(product, panel, half,
                                                                   product.m - half);
    }
    return;
  }
  multiply_rows<Isa, Steps, kFormat, Isa::kFewRows>(product);
}

// With FP32 activations.
template <typename Isa>
void multiply_floats(const Product& product) {
  using Steps = FloatSteps<Isa>;
  switch (product.format) {
    case Format::kBFloat16:
      return multiply_format<Isa, Steps, Format::kBFloat16>(product);
    case Format::kFloat32:
      return multiply_format<Isa, Steps, Format::kFloat32>(product);
    case Format::kFP8:
      return multiply_format<Isa, Steps, Format::kFP8>(product);
    case Format::kNVFP4:
      return multiply_format<Isa, Steps, Format::kNVFP4>(product);
  }
}

// With BF16 activations and weights that BF16 holds: the caller takes multiply_floats() for others.
template <typename Isa>
void multiply_dots(const Product& product) {
  using Steps = DotSteps<Isa>;
  switch (product.format) {
    case Format::kBFloat16:
      return multiply_format<Isa, Steps, Format::kBFloat16>(product);
    case Format::kFP8:
      return multiply_format<Isa, Steps, Format::kFP8>(product);
    case Format::kNVFP4:
      return multiply_format<Isa, Steps, Format::kNVFP4>(product);
    case Format::kFloat32:
      return;
  }
}

}  // namespace
}  // namespace lagoon::kernels::cpu

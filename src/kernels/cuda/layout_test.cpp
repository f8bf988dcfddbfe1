// The device layout and the cut of work, on the host: what the kernels' masks and shifts make of
// packed weights is what the checkpoint's codes stand for.
#include "kernels/cuda/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "kernels/cuda/plan.h"
#include "kernels/step.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {
namespace {

float half(uint32_t pair, int which) {
  return numeric::to_float(
      numeric::BFloat16{static_cast<uint16_t>(which == 0 ? pair & 0xffff : pair >> 16)});
}

// Every weight has a place of its own, and all bytes are some weight's.
TEST(Layout, PlacesFillTheUnits) {
  constexpr int64_t kRows = 40, kColumns = 300;
  const int64_t units = units_of(kColumns);
  ASSERT_EQ(units, 3);
  ASSERT_EQ(tiles_of(kRows), 3);
  for (const Packing packing : {Packing::kBFloat16, Packing::kFP8}) {
    std::set<int64_t> places;
    for (int64_t row = 0; row < tiles_of(kRows) * kTileRows; ++row) {
      for (int64_t column = 0; column < padded(kColumns); ++column) {
        places.insert(value_offset(packing, place_of(row, column, units)));
      }
    }
    const int64_t element = packing == Packing::kBFloat16 ? 2 : 1;
    EXPECT_EQ(static_cast<int64_t>(places.size()) * element,
              packed_bytes(packing, kRows, kColumns));
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), packed_bytes(packing, kRows, kColumns) - element);
  }
  std::set<int64_t> scales, bits;
  for (int64_t row = 0; row < tiles_of(kRows) * kTileRows; ++row) {
    for (int64_t column = 0; column < padded(kColumns); ++column) {
      const Place place = place_of(row, column, units);
      scales.insert(scale_offset(place));
      for (int i = 0; i < 4; ++i) bits.insert(code_word(place) * 32 + code_bit(place.index, i));
    }
  }
  EXPECT_EQ(static_cast<int64_t>(scales.size()), tiles_of(kRows) * units * kUnitScaleBytes);
  EXPECT_EQ(static_cast<int64_t>(bits.size()), packed_bytes(Packing::kNVFP4, kRows, kColumns) * 8);
}

// A lane's fragment: register r of product j, as PTX describes m16n8k16 with columns permuted.
TEST(Layout, ABfloat16LoadIsAFragment) {
  for (int j = 0; j < 4; ++j) {
    for (int e = 0; e < 8; ++e) {
      const int lane = 13;  // row 3, columns of t = 1
      const int row = 3 + e / 2 % 2 * 8;
      const int column = 64 + 16 * 1 + 4 * j + e / 4 * 2 + e % 2;
      const Place place = place_of(row, column, 1);
      EXPECT_EQ(value_offset(Packing::kBFloat16, place), ((4 + j) * 32 + lane) * 16 + e * 2);
    }
  }
}

// The 16 codes x 127 scales of NVFP4: exact.
TEST(Layout, DecodesEveryCodeWithEveryScale) {
  for (uint32_t scale = 0; scale < 127; ++scale) {
    const float scale_value = numeric::e4m3_to_float(static_cast<uint8_t>(scale));
    for (uint32_t code = 0; code < 16; ++code) {
      const float expected = numeric::e2m1_to_float(static_cast<uint8_t>(code)) * scale_value;
      for (int index = 0; index < 8; ++index) {
        const uint32_t word = scale == 0 ? 0 : spread_code(code, index);
        if (scale != 0) {
          EXPECT_EQ(gather_code(word, index), code);
        }
        const float number = half(code_pair(word, index / 2), index % 2);
        const float factor = half(scale_pair(encode_scale(scale)), index % 2);
        // As the device multiplies: to the nearest BF16. Nothing is lost.
        const float product = number * factor;
        EXPECT_EQ(numeric::round_to_bfloat16(product), product);
        EXPECT_EQ(std::abs(product * kCodeFactor), std::abs(expected)) << code << " " << scale;
        if (expected != 0) {
          EXPECT_EQ(product * kCodeFactor, expected) << code << " " << scale;
        }
        // No other number of the word is touched.
        for (int other = 0; other < 8; ++other) {
          if (other != index) {
            EXPECT_EQ(half(code_pair(word, other / 2), other % 2), 0);
          }
        }
      }
    }
  }
}

// Eight codes together are what each is alone.
TEST(Layout, CodesOfAWordDoNotMeet) {
  uint32_t random = 1;
  for (int trial = 0; trial < 10000; ++trial) {
    uint32_t codes[8];
    uint32_t word = 0;
    for (int index = 0; index < 8; ++index) {
      random = random * 1664525 + 1013904223;
      codes[index] = trial == 0 ? 15 : random >> 28;
      word |= spread_code(codes[index], index);
    }
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t alone = code_pair(spread_code(codes[2 * pair], 2 * pair), pair) |
                             code_pair(spread_code(codes[2 * pair + 1], 2 * pair + 1), pair);
      ASSERT_EQ(code_pair(word, pair), alone);
    }
  }
}

TEST(Layout, ScalesOfAUnit) {
  const Place first = {.lane = 0, .step = 0, .upper = 0};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (int step = 0; step < 2; ++step) {
      for (int upper = 0; upper < 2; ++upper) {
        const Place place = {.lane = 0, .step = step, .upper = upper};
        const auto at = scale_offset(place) - scale_offset(first);
        const uint32_t others = 0xA5C30F96u & ~(0xffu << (8 * at));
        EXPECT_EQ(unit_scales(byte << (8 * at) | others, upper) >> (16 * step) & 0xffff,
                  scale_pair(byte) & 0xffff);
      }
    }
  }
}

TEST(Layout, DecodesEveryFp8Code) {
  const float factor = half(kFP8Factor, 0);
  EXPECT_EQ(factor, 0x1p120F);
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    for (int within = 0; within < 4; ++within) {
      const Place place = {.index = within};
      const uint32_t word = code << (value_offset(Packing::kFP8, place) * 8);
      EXPECT_EQ(half(fp8_pair(word, within / 2), within % 2) * factor,
                numeric::e4m3_to_float(static_cast<uint8_t>(code)));
    }
  }
}

TEST(Plan, SlicesCoverTheColumns) {
  for (int64_t columns = 1; columns <= 18432; columns += columns < 3000 ? 1 : 64) {
    const Slices cut = slices_of(columns);
    EXPECT_GE(cut.slices * cut.units, units_of(columns));
    EXPECT_EQ(kWarps % cut.slices, 0);
    EXPECT_EQ(cut.tiles() * cut.slices, kWarps);
  }
}

TEST(Plan, ABlockServesAllRowsUpTo64) {
  for (int64_t rows = 1; rows <= 200; ++rows) {
    const int64_t tiles = row_tiles_of(rows);
    EXPECT_EQ(tiles & (tiles - 1), 0);
    EXPECT_GE(tiles * 8, std::min<int64_t>(rows, 64));
    EXPECT_TRUE(tiles == 1 || tiles / 2 * 8 < rows);
  }
}

// What is reserved for the partial results of a row is reached, and never passed.
TEST(Plan, NoRowSeesMoreChunksThanAreReserved) {
  for (const int window : {0, 1, 2, 40, 128, 129, 130, 512}) {
    for (const int positions : {1, 300, 8193, 65537, 262144}) {
      int most = 0;
      for (int position = 0; position < positions; ++position) {
        most = std::max(most, chunks_seen(window, position));
      }
      EXPECT_LE(most, most_chunks_seen(window, positions)) << window << " " << positions;
      if (positions > 1000) {
        EXPECT_EQ(most, most_chunks_seen(window, positions)) << window;
      }
    }
  }
}

TEST(Plan, ChunksFollowEachOther) {
  for (const int window : {0, 512}) {
    for (int position = 0; position < 262144; ++position) {
      const int chunk = chunk_of(window, position);
      ASSERT_LE(chunk_begin(window, chunk), position);
      ASSERT_GT(chunk_begin(window, chunk + 1), position);
      ASSERT_EQ(chunk_begin(window, chunk) % kKeyBlock, 0);
    }
  }
  EXPECT_EQ(chunks_seen(0, 262143), 184);
  EXPECT_EQ(chunks_seen(512, 600), 5);
  EXPECT_EQ(chunks_seen(512, 511), 4);
  EXPECT_EQ(lowest_position(512, 511), 0);
  EXPECT_EQ(lowest_position(512, 512), 1);
}

// Rows of any sequences take no more tiles, and no more groups than there are rows.
TEST(Plan, TilesOfQueries) {
  uint32_t random = 1;
  const auto below = [&random](int n) {
    random = random * 1664525 + 1013904223;
    return static_cast<int>((random >> 8) % static_cast<uint32_t>(n));
  };
  for (const int queries : {1, 3, 6, 8, 9, 16, 20}) {
    int64_t exact = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      const int sequences = 1 + below(16);
      std::vector<Row> rows;
      for (int s = 0; s < sequences && rows.size() < 64; ++s) {
        const int count =
            std::min(below(trial % 3 == 0 ? 64 : 9), 64 - static_cast<int>(rows.size()));
        for (int i = 0; i < count; ++i) rows.push_back({.position = i, .sequence = s});
      }
      const std::vector<RowGroup> groups = group_rows(rows, kQueryTile);
      EXPECT_LE(groups.size(), rows.size());
      int64_t tiles = 0;
      for (const RowGroup& group : groups) tiles += ceil_divide(group.rows * queries, kQueryTile);
      const int64_t most = most_query_tiles(static_cast<int64_t>(rows.size()), queries, sequences);
      ASSERT_LE(tiles, most) << queries << " " << rows.size() << " " << sequences;
      // As many groups as rows leave no room for an empty one, and need none.
      EXPECT_TRUE(groups.size() < rows.size() || tiles == most);
      exact += tiles == most ? 1 : 0;
    }
    EXPECT_GT(exact, 0) << queries;
  }
  // A verification of one sequence wastes none.
  EXPECT_EQ(most_query_tiles(7, 9, 1), 4);
  EXPECT_EQ(most_query_tiles(7, 6, 1), 3);
}

}  // namespace
}  // namespace lagoon::kernels::cuda

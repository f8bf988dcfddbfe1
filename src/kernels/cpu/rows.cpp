#include <typeinfo>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/operations.h"

namespace lagoon::kernels::cpu {

Prepared::Prepared(Weight packed) : packed_(std::move(packed)), matrix_(&as_matrix(packed_.get())) {
  if (matrix().rows() != 1) return;
  row_.resize(static_cast<size_t>(matrix().columns()));
  matrix().read_row(0, row_.data());
}

namespace {

const Prepared& prepared(const PackedWeight* weight) {
  // Not dynamic_cast, which walks the bases by name: there are dozens of these in a step.
  CHECK(weight != nullptr && typeid(*weight) == typeid(Prepared));
  return static_cast<const Prepared&>(*weight);
}

}  // namespace

const Matrix& matrix_of(const PackedWeight* weight) {
  return prepared(weight).matrix();
}

const Matrix& matrix_of(const PackedWeight* weight, int64_t rows, int64_t columns) {
  const Matrix& matrix = matrix_of(weight);
  CHECK(matrix.rows() == rows && matrix.columns() == columns);
  return matrix;
}

const float* vector_of(const Weight& weight, int64_t n) {
  const std::vector<float>& row = prepared(weight.get()).row();
  CHECK(static_cast<int64_t>(row.size()) == n);
  return row.data();
}

float* Buffer::floats(int64_t count) {
  if (count > size_) {
    values_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
    size_ = count;
  }
  return values_.get();
}

void multiply_share(std::span<const Output> outputs, const float* x, int64_t x_stride, int64_t m,
                    int part, int parts) {
  int64_t total = 0;
  for (const Output& output : outputs) total += output.matrix->panels();
  Panels panels(part, parts, total);
  for (const Output& output : outputs) {
    const Range range = panels.next(output.matrix->panels(), 1);
    multiply(*output.matrix, x, x_stride, static_cast<int>(m), output.y, output.matrix->rows(),
             range.begin, range.end);
  }
}

void norm_share(const Machine& machine, const float* x, int64_t rows, int64_t n,
                const float* weight, float epsilon, float* out, int part) {
  const Range range = share(rows, part, machine.parts());
  for (int64_t r = range.begin; r < range.end; ++r) {
    vectors().rms_norm(x + r * n, weight, n, epsilon, machine.rounds(), out + r * n);
  }
}

void store_key_value(const Machine& machine, const KeyValue& into, int64_t row, int64_t entry,
                     int kv_head, const float* key, const float* value, float* scratch) {
  const AttentionLayer& layer = *into.layer;
  vectors().norm_and_rotate(key, vector_of(layer.k_norm, layer.head_dim), layer.head_dim,
                            layer.norm_epsilon, into.rotation->cosines(row),
                            into.rotation->sines(row), into.rotation->pairs, machine.rounds(),
                            scratch);
  into.cache->put(entry, kv_head, scratch, value, layer.k_scale, layer.v_scale);
}

}  // namespace lagoon::kernels::cpu

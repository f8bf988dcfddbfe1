#include "base/check.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/operations.h"

namespace lagoon::kernels::ref {

std::vector<float> read_vector(const Weight& weight, int64_t n) {
  const Matrix& matrix = as_matrix(weight.get());
  CHECK(matrix.rows() == 1 && matrix.columns() == n);
  std::vector<float> values(n);
  matrix.read_row(0, values.data());
  return values;
}

void norm_rows(Machine& machine, const float* x, int64_t rows, int64_t n, const Weight& weight,
               float epsilon, float* out) {
  const std::vector<float> weights = read_vector(weight, n);
  machine.workers.for_each(rows, [&](int64_t r, Buffer&) {
    rms_norm(x + r * n, weights.data(), n, epsilon, out + r * n);
    round_activations(machine.activations, out + r * n, n);
  });
}

}  // namespace lagoon::kernels::ref

// Tokens per second by the bytes of a step: decoding is bounded by what is read. The experts that
// several rows choose, and the acceptance of a draft, are those that were measured on the full-size
// model; another model's own are found by `lagoon bench`.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/config.h"
#include "kernels/ops.h"
#include "plan/inventory.h"

namespace lagoon::plan {

// Distinct experts of a sparse layer that `rows` consecutive rows of one request choose: for 10 of
// 256 as measured on a DFlash verify (patrickbdevaney/laguna-s1-cuda-server, LOOP_LOG.md), else as
// many as independent rows.
double distinct_experts(int experts, int top_k, int rows);

// Tokens of a step with k proposals, where the published pair (code, k = 6) accepts as reported:
// position by position .88 .69 .64 .59 .51 .39, then a fifth less each.
double published_tokens_per_step(int k);

class ByteModel {
 public:
  // `draft` may be null.
  ByteModel(const checkpoint::TargetConfig& config, const Inventory& weights,
            const Inventory* draft, kernels::CacheType cache_type);

  // Bytes that a step of one request of `rows` rows reads with `context` positions before them.
  double step_bytes(int rows, int64_t context) const;
  // Of a step of `streams` requests with so many positions before each, in which a sparse layer
  // reads `distinct` experts.
  double counted_bytes(double distinct, double context, int streams) const;
  // Of a draft for it, the target's lm_head included.
  double draft_bytes() const { return draft_bytes_; }
  // The same with keys and values of the context, for `streams` requests; `fusion`: with the matrix
  // that makes context of the target's taps, which a step reads once it is known what stands.
  double draft_bytes(const checkpoint::DraftConfig& config, double context, int streams,
                     bool fusion) const;
  // Of one request, with k proposals a step (0: none), where `rate` bytes come a second.
  double tokens_per_second(int k, int64_t context, double rate) const;

 private:
  double fixed_ = 0;       // all but embedding and routed experts
  double per_expert_ = 0;  // of one expert in every sparse layer
  double draft_bytes_ = 0;
  double full_position_ = 0;     // keys and values of a position, all full layers
  double sliding_position_ = 0;  // all sliding ones
  int64_t window_ = 0;
  int experts_ = 0;
  int top_k_ = 0;
};

// Bytes per second that so many threads read from this machine's memory together; takes about a
// tenth of a second and 256 MiB. 0 where there is no memory for it.
double measure_read_rate(int threads);

// Bytes per second of the memory that a backend computes from: what its device copies, `bytes` or
// the largest half, quarter and so on that is free, 256 MiB at least; without a device what
// `threads` read. 0 where there is no memory for it.
double measure_memory_rate(kernels::Backend& backend, int64_t bytes, int threads);

}  // namespace lagoon::plan

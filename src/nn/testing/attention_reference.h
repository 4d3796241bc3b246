// Dense attention in double, one pair of query and key at a time: the twin of nn/attention.h.
#pragma once

#include <cstdint>
#include <vector>

namespace ulmus::nn {

struct AttentionShape {
  int64_t B, T, N, K, H;
  int64_t window = 0;                  // as in AttentionOptions
  std::vector<int64_t> segments = {};  // [B,T], or empty
  double scale = 0;

  int64_t query_size() const { return B * T * N * H; }
  int64_t key_size() const { return B * T * K * H; }
};

struct AttentionGradients {
  std::vector<double> dq, dk, dv;
};

// Row-major q [B,T,N,H], k and v [B,T,K,H] -> [B,T,N,H].
std::vector<double> AttentionReference(const AttentionShape& shape, const std::vector<double>& q,
                                       const std::vector<double>& k, const std::vector<double>& v);

// Gradients of sum(out * dout).
AttentionGradients AttentionBackwardReference(const AttentionShape& shape,
                                              const std::vector<double>& q,
                                              const std::vector<double>& k,
                                              const std::vector<double>& v,
                                              const std::vector<double>& dout);

}  // namespace ulmus::nn

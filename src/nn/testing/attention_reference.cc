#include "nn/testing/attention_reference.h"

#include <algorithm>
#include <cmath>

namespace ulmus::nn {
namespace {

bool Meet(const AttentionShape& a, int64_t b, int64_t i, int64_t j) {
  if (j > i || (a.window > 0 && i - j >= a.window)) return false;
  const auto id = [&](int64_t t) { return a.segments[static_cast<size_t>(b * a.T + t)]; };
  return a.segments.empty() || id(i) == id(j);
}

double Scale(const AttentionShape& a) {
  return a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.H));
}

const double* Row(const std::vector<double>& x, int64_t T, int64_t heads, int64_t H, int64_t b,
                  int64_t t, int64_t head) {
  return x.data() + ((b * T + t) * heads + head) * H;
}

double Dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t h = 0; h < n; ++h) sum += x[h] * y[h];
  return sum;
}

// Softmax over the keys of query (b, i, n), 0 for those it does not meet.
std::vector<double> Probabilities(const AttentionShape& a, const std::vector<double>& q,
                                  const std::vector<double>& k, int64_t b, int64_t i, int64_t n) {
  std::vector<double> p(static_cast<size_t>(a.T), 0.0);
  double top = -HUGE_VAL, sum = 0;
  const int64_t kv = n / (a.N / a.K);
  const auto score = [&](int64_t j) {
    return Scale(a) * Dot(Row(q, a.T, a.N, a.H, b, i, n), Row(k, a.T, a.K, a.H, b, j, kv), a.H);
  };
  for (int64_t j = 0; j < a.T; ++j) {
    if (Meet(a, b, i, j)) top = std::max(top, score(j));
  }
  for (int64_t j = 0; j < a.T; ++j) {
    if (Meet(a, b, i, j)) sum += p[static_cast<size_t>(j)] = std::exp(score(j) - top);
  }
  for (double& x : p) x /= sum;
  return p;
}

template <class F>
void ForEachQuery(const AttentionShape& a, const F& f) {
  for (int64_t b = 0; b < a.B; ++b) {
    for (int64_t i = 0; i < a.T; ++i) {
      for (int64_t n = 0; n < a.N; ++n) f(b, i, n, n / (a.N / a.K));
    }
  }
}

}  // namespace

std::vector<double> AttentionReference(const AttentionShape& a, const std::vector<double>& q,
                                       const std::vector<double>& k, const std::vector<double>& v) {
  std::vector<double> out(static_cast<size_t>(a.query_size()), 0.0);
  ForEachQuery(a, [&](int64_t b, int64_t i, int64_t n, int64_t kv) {
    const std::vector<double> p = Probabilities(a, q, k, b, i, n);
    double* row = out.data() + ((b * a.T + i) * a.N + n) * a.H;
    for (int64_t j = 0; j < a.T; ++j) {
      const double* value = Row(v, a.T, a.K, a.H, b, j, kv);
      for (int64_t h = 0; h < a.H; ++h) row[h] += p[static_cast<size_t>(j)] * value[h];
    }
  });
  return out;
}

AttentionGradients AttentionBackwardReference(const AttentionShape& a, const std::vector<double>& q,
                                              const std::vector<double>& k,
                                              const std::vector<double>& v,
                                              const std::vector<double>& dout) {
  AttentionGradients grads{std::vector<double>(static_cast<size_t>(a.query_size())),
                           std::vector<double>(static_cast<size_t>(a.key_size())),
                           std::vector<double>(static_cast<size_t>(a.key_size()))};
  ForEachQuery(a, [&](int64_t b, int64_t i, int64_t n, int64_t kv) {
    const std::vector<double> p = Probabilities(a, q, k, b, i, n);
    const double* ct = Row(dout, a.T, a.N, a.H, b, i, n);
    std::vector<double> dp(p.size());
    double mean = 0;
    for (int64_t j = 0; j < a.T; ++j) {
      const auto at = static_cast<size_t>(j);
      dp[at] = Dot(ct, Row(v, a.T, a.K, a.H, b, j, kv), a.H);
      mean += p[at] * dp[at];
    }
    for (int64_t j = 0; j < a.T; ++j) {
      const double pj = p[static_cast<size_t>(j)];
      const double ds = pj * (dp[static_cast<size_t>(j)] - mean) * Scale(a);
      for (int64_t h = 0; h < a.H; ++h) {
        const int64_t query = ((b * a.T + i) * a.N + n) * a.H + h,
                      key = ((b * a.T + j) * a.K + kv) * a.H + h;
        grads.dq[static_cast<size_t>(query)] += ds * k[static_cast<size_t>(key)];
        grads.dk[static_cast<size_t>(key)] += ds * q[static_cast<size_t>(query)];
        grads.dv[static_cast<size_t>(key)] += pj * dout[static_cast<size_t>(query)];
      }
    }
  });
  return grads;
}

}  // namespace ulmus::nn

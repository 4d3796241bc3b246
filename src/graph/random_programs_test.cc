// Gradients of random programs with nested regions against central differences in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"
#include "graph/testing/random_programs.h"

namespace ulmus::graph {
namespace {

constexpr uint64_t kNumPrograms = 400, kFirstSecondOrder = 300;

Value SumOf(Value v) {
  Dims axes;
  for (int64_t d = 0; d < v.rank(); ++d) axes.push_back(d);
  return ReduceSum(Sin(v), axes);
}

// Programs from kFirstSecondOrder on have a gradient in their loss.
Value LossOf(uint64_t seed, const RandomProgram& program) {
  if (seed < kFirstSecondOrder) return program.loss;
  Value loss = program.loss * 0.5;
  for (Value grad : Grad(program.loss, {program.wrt[0], program.wrt[1]})) loss = loss + SumOf(grad);
  return loss;
}

double Evaluate(const Graph& graph, const std::vector<RefTensor>& arguments) {
  return Interpret(graph, arguments, {.round = false})[0].data[0];
}

// (loss(x + h d) - loss(x - h d)) / 2h
double Difference(const Graph& graph, std::vector<RefTensor> arguments, size_t input,
                  const std::vector<double>& direction, double h) {
  const auto moved = [&](double step) {
    for (size_t i = 0; i < direction.size(); ++i) arguments[input].data[i] += step * direction[i];
    return Evaluate(graph, arguments);
  };
  const double above = moved(h);
  return (above - moved(-2 * h)) / (2 * h);
}

class RandomProgramGradient : public testing::TestWithParam<uint64_t> {
};  // first seed of a batch of 20

TEST_P(RandomProgramGradient, EqualsCentralDifferencesInDouble) {
  for (uint64_t seed = GetParam(); seed < GetParam() + 20; ++seed) {
    Graph plain("plain"), graph("random");
    const RandomProgram without = AddRandomProgram(plain, seed, DType::kF64, "");
    plain.Result("loss", LossOf(seed, without));
    const RandomProgram program = AddRandomProgram(graph, seed, DType::kF64, "");
    const Value loss = LossOf(seed, program);
    graph.Result("loss", loss);
    // In one go, or one gradient after another on the same graph.
    Values grads;
    if (seed % 2 == 0) {
      grads = Grad(loss, program.wrt);
    } else {
      for (Value v : program.wrt) grads.push_back(Grad(loss, {v})[0]);
    }
    for (Value grad : grads) graph.Result("grad", grad);

    const std::vector<RefTensor> results = Interpret(graph, program.arguments, {.round = false});
    ASSERT_EQ(results[0].data[0], Evaluate(plain, program.arguments))
        << "seed " << seed << ": taking gradients changed the loss";
    for (size_t w = 0; w < program.wrt.size(); ++w) {
      const RefTensor& grad = results[1 + w];
      std::vector<double> direction(grad.data.size());
      double expected = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = std::cos(1.3 * static_cast<double>(i) + static_cast<double>(seed));
        expected += grad.data[i] * direction[i];
      }
      // Truncation grows with h, cancellation with 1/h; a kink near the point spoils one step but
      // not the smaller ones.
      double best = INFINITY, nearest = 0;
      for (double h : {1e-5, 1e-4, 1e-6}) {
        const double difference = Difference(plain, program.arguments, w, direction, h);
        if (std::fabs(difference - expected) < std::fabs(best))
          best = difference - expected, nearest = difference;
        if (std::fabs(best) < 1e-6 * std::max(1.0, std::fabs(expected))) break;
      }
      ASSERT_LE(std::fabs(best), 1e-6 * std::max(1.0, std::fabs(expected)))
          << "seed " << seed << ", input " << w << ": gradient " << expected << ", difference "
          << nearest << "\n"
          << plain.ToProgram({.locations = false}).text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramGradient,
                         testing::Range<uint64_t>(0, kNumPrograms, 20));

std::string TextOf(uint64_t seed) {
  Graph graph("text");
  const RandomProgram program = AddRandomProgram(graph, seed, DType::kF32, "");
  const Value loss = LossOf(seed, program);
  graph.Result("loss", loss);
  for (Value grad : Grad(loss, program.wrt)) graph.Result("grad", grad);
  return graph.ToProgram().text;
}

// Leaves holes all over the heap, so that later objects do not come to lie in order of creation.
void ScatterHeap() {
  std::vector<std::unique_ptr<std::byte[]>> blocks;
  for (size_t i = 0; i < 20000; ++i)
    blocks.push_back(std::make_unique<std::byte[]>(16 + (i * 7919) % 700));
  for (size_t i = 0; i < blocks.size(); ++i)
    std::swap(blocks[i], blocks[(i * 104729 + 17) % blocks.size()]);
  for (size_t i = 0; i < blocks.size(); i += 2) blocks[i].reset();
}

TEST(RandomProgramText, DoesNotDependOnAddresses) {
  for (uint64_t seed = kFirstSecondOrder - 40; seed < kFirstSecondOrder + 10; ++seed) {
    const std::string text = TextOf(seed);
    ScatterHeap();
    ASSERT_EQ(text, TextOf(seed)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ulmus::graph

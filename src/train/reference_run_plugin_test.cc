// A PyTorch run of a small OLMo 3 on real text, reproduced from the same weights and tokens through
// the whole program. Its files (86 MB) are not part of the repository: ULMUS_REFERENCE_RUN names
// their folder. Tolerances: its README, ten times what re-runs in another order of sums differ by.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/hash.h"
#include "checkpoint/safetensors_file.h"
#include "metrics/jsonl.h"
#include "pjrt/testing.h"
#include "train/checkpoint.h"
#include "train/loop.h"

namespace ulmus::train {
namespace {

Path ReferenceFolder() {
  const char* folder = std::getenv("ULMUS_REFERENCE_RUN");
  return folder == nullptr ? "" : folder;
}
#define SKIP_WITHOUT_REFERENCE()                                                    \
  if (ReferenceFolder().empty())                                                    \
    GTEST_SKIP() << "ULMUS_REFERENCE_RUN does not name the reference run's folder"; \
  if (!pjrt::SharedDefaultClient(1).ok())                                           \
  GTEST_SKIP() << "no CPU plugin is installed; run `make setup`"

struct ReferenceStep {
  double lr = 0, ce = 0, z_loss = 0, grad_norm = 0;
  bool skipped = false;
  std::string instances_sha256;
  int64_t filtered = 0, divisor = 0;
};

std::map<int64_t, ReferenceStep> ReadReference() {
  std::ifstream file(ReferenceFolder() / "train.csv");
  std::string line;
  std::getline(file, line);
  std::map<int64_t, ReferenceStep> steps;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    steps[std::stoll(cells[0])] = {std::stod(cells[1]),  std::stod(cells[2]), std::stod(cells[3]),
                                   std::stod(cells[4]),  cells[5] == "1",     cells[6],
                                   std::stoll(cells[7]), std::stoll(cells[8])};
  }
  return steps;
}

std::string HashOf(std::span<const int64_t> ids) {
  std::string bytes;
  for (const int64_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>((id >> shift) & 0xff));
  return Sha256Hex(bytes);
}

// "<name>.exp_avg" of the PyTorch file as "exp_avg.<name>".
class Renamed : public checkpoint::TensorSource {
 public:
  explicit Renamed(std::unique_ptr<checkpoint::TensorSource> inner) : inner_(std::move(inner)) {
    std::map<std::string, int64_t> by_name;
    for (size_t i = 0; i < inner_->tensors().size(); ++i) {
      std::string name = inner_->tensors()[i].name;
      for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
        if (!name.ends_with(moment)) continue;
        name.resize(name.size() - std::string(moment).size());
        name = std::string(moment + 1) + "." + name;
        break;
      }
      by_name[name] = static_cast<int64_t>(i);
    }
    for (const auto& [name, index] : by_name) {
      tensors_.push_back({name, inner_->tensors()[static_cast<size_t>(index)].type});
      indices_.push_back(index);
    }
  }
  std::span<const checkpoint::TensorInfo> tensors() const override { return tensors_; }
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override {
    return inner_->Read(indices_[static_cast<size_t>(index)], first, out);
  }

 private:
  std::unique_ptr<checkpoint::TensorSource> inner_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<int64_t> indices_;
};

class ReferenceRun : public testing::Test {
 protected:
  std::unique_ptr<train::Run> Open(int64_t last_step, std::vector<std::string> flags = {}) {
    const Path init = temp_.path() / "init";
    std::filesystem::create_directory(init);
    std::filesystem::copy_file(ReferenceFolder() / "init.safetensors", init / "model.safetensors");
    std::filesystem::copy_file(ReferenceFolder() / "config.json", init / "config.json");
    flags.push_back("data.base_dir=" + ReferenceFolder().string());
    flags.push_back("train.start_from=" + init.string());
    flags.push_back(fmt::format("train.steps={}", last_step));
    auto recipe = ResolveRun("reference_run", std::move(flags));
    EXPECT_TRUE(recipe.ok()) << recipe.status().message();
    RunRequest request;
    request.run_dir = temp_.path() / "run";
    auto opened = OpenRun(*std::move(recipe), request, train::Run::Clock::now());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? std::move(opened->run) : nullptr;
  }

  std::map<int64_t, metrics::StepRecord> Records() const {
    std::map<int64_t, metrics::StepRecord> records;
    const Status read = metrics::ReadMetrics(
        temp_.path() / "run/metrics.jsonl", [&](const metrics::Record& record) -> Status {
          if (const auto* step = std::get_if<metrics::StepRecord>(&record))
            records[step->step] = *step;
          return {};
        });
    EXPECT_TRUE(read.ok()) << read.message();
    return records;
  }

  // Largest differences over the steps are printed: the tolerance is to be compared with them.
  void ExpectSteps(const train::Run& run, int64_t first, int64_t last, double ce_limit) const {
    const auto reference = ReadReference();
    const auto records = Records();
    double worst_ce = 0, worst_norm = 0;
    for (int64_t step = first; step <= last; ++step) {
      ASSERT_TRUE(records.contains(step)) << "step " << step;
      const ReferenceStep& want = reference.at(step);
      const metrics::StepRecord& got = records.at(step);
      // Equal to all digits that the file has.
      EXPECT_EQ(fmt::format("{:.9g}", got.learning_rate), fmt::format("{:.9g}", want.lr))
          << "step " << step;
      EXPECT_EQ(got.applied == 0, want.skipped) << "step " << step;
      EXPECT_EQ(got.filtered, want.filtered) << "step " << step;
      EXPECT_EQ(got.loss_divisor, want.divisor) << "step " << step;
      const auto ids = run.data.order->InstancesOfStep(step - 1);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(HashOf(*ids), want.instances_sha256) << "step " << step;
      EXPECT_NEAR(got.loss, want.ce, ce_limit) << "step " << step;
      EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
      worst_ce = std::max(worst_ce, std::fabs(got.loss - want.ce));
      worst_norm = std::max(worst_norm, std::fabs(got.grad_norm / want.grad_norm - 1));
    }
    fmt::print("steps {} to {}: cross entropy within {:.3g}, gradient norm within {:.3g}\n", first,
               last, worst_ce, worst_norm);
  }

 private:
  TempDir temp_;
};

TEST_F(ReferenceRun, FirstSixtyStepsFromTheSameWeights) {
  SKIP_WITHOUT_REFERENCE();
  const auto run = Open(60, {"eval.every=0"});
  ASSERT_NE(run, nullptr);
  const auto summary = Train(*run);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ExpectSteps(*run, 1, 10, 5e-6);
  ExpectSteps(*run, 11, 60, 3e-5);
}

TEST_F(ReferenceRun, FortyStepsFromItsStateAfterThreeHundred) {
  SKIP_WITHOUT_REFERENCE();
  constexpr int64_t kFrom = 300;
  const auto run = Open(kFrom + 40, {"eval.every=0"});
  ASSERT_NE(run, nullptr);
  auto file = checkpoint::SafetensorsSource::Open(ReferenceFolder() / "state_300.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Renamed source(*std::move(file));
  const Status restored = RestoreState(*run->trainer, source, RestoreParts::kAll, "state_300");
  ASSERT_TRUE(restored.ok()) << restored.message();
  std::ifstream text(ReferenceFolder() / "state_300.json");
  const auto json = nlohmann::json::parse(text);
  run->state.step = run->first_step = kFrom;
  run->state.tokens = json["tokens_processed"];
  run->state.adam_count = json["adam_step"];
  // It keeps one value more, which the next step drops.
  auto losses = json["losses"].get<std::vector<double>>(),
       norms = json["grad_norms"].get<std::vector<double>>();
  losses.erase(losses.begin());
  norms.erase(norms.begin());
  ASSERT_TRUE(run->state.history.Restore(std::move(losses), std::move(norms)).ok());
  ASSERT_TRUE(run->trainer->SetAdamCount(run->state.adam_count).ok());
  run->loader->SeekTo(kFrom);
  const auto summary = Train(*run);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ExpectSteps(*run, kFrom + 1, kFrom + 40, 1e-5);
}

}  // namespace
}  // namespace ulmus::train

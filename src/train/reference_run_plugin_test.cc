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

// Rows of cells, without the row of names.
std::vector<std::vector<std::string>> ReadCsv(const Path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<std::vector<std::string>> rows;
  while (std::getline(file, line)) {
    rows.emplace_back();
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) rows.back().push_back(cell);
  }
  EXPECT_FALSE(rows.empty()) << path;
  return rows;
}

std::map<int64_t, ReferenceStep> ReadSteps(const Path& path) {
  std::map<int64_t, ReferenceStep> steps;
  for (const auto& cells : ReadCsv(path)) {
    steps[std::stoll(cells[0])] = {std::stod(cells[1]),  std::stod(cells[2]), std::stod(cells[3]),
                                   std::stod(cells[4]),  cells[5] == "1",     cells[6],
                                   std::stoll(cells[7]), std::stoll(cells[8])};
  }
  return steps;
}

// Little-endian u32, as the reference hashes them and data.select reads them.
std::string BytesOf(std::span<const int64_t> ids) {
  std::string bytes;
  for (const int64_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>((id >> shift) & 0xff));
  return bytes;
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

using SetLosses = std::map<std::pair<int64_t, std::string>, double>;  // by step and set

class ReferenceRun : public testing::Test {
 protected:
  // `results` holds train.csv, heldout.csv and, if it is not the main run's, config.json.
  std::unique_ptr<train::Run> Open(int64_t last_step, std::vector<std::string> flags = {},
                                   const Path& results = "") {
    results_ = ReferenceFolder() / results;
    const Path init = temp_.path() / "init";
    const bool own = std::filesystem::exists(results_ / "config.json");
    std::filesystem::create_directory(init);
    std::filesystem::copy_file(ReferenceFolder() / "init.safetensors", init / "model.safetensors");
    std::filesystem::copy_file((own ? results_ : ReferenceFolder()) / "config.json",
                               init / "config.json");
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

  // Instances of the data by number; the run's numbers count these.
  void Select(std::vector<int64_t> ids, std::vector<std::string>& flags) {
    const Path file = temp_.path() / "ids.u32";
    ASSERT_TRUE(WriteFileAtomic(file, BytesOf(ids)).ok());
    flags.push_back("data.select=" + file.string());
    selected_ = std::move(ids);
  }

  void ReadRecords() {
    const Status read = metrics::ReadMetrics(
        temp_.path() / "run/metrics.jsonl", [&](const metrics::Record& record) -> Status {
          if (const auto* step = std::get_if<metrics::StepRecord>(&record))
            steps_[step->step] = *step;
          if (const auto* eval = std::get_if<metrics::EvalRecord>(&record))
            heldout_[{eval->step, eval->set}] = eval->loss.mean();
          const auto* event = std::get_if<metrics::EventRecord>(&record);
          if (event != nullptr && event->name == metrics::kEventAlarm) alarms_.push_back(*event);
          return {};
        });
    EXPECT_TRUE(read.ok()) << read.message();
  }

  // What is exact, over all steps of the run.
  void ExpectRecipe(const train::Run& run, int64_t first, int64_t last) {
    const auto reference = ReadSteps(results_ / "train.csv");
    ReadRecords();
    for (int64_t step = first; step <= last; ++step) {
      ASSERT_TRUE(steps_.contains(step)) << "step " << step;
      const ReferenceStep& want = reference.at(step);
      const metrics::StepRecord& got = steps_.at(step);
      // Equal to all digits that the file has.
      EXPECT_EQ(fmt::format("{:.9g}", got.learning_rate), fmt::format("{:.9g}", want.lr))
          << "step " << step;
      EXPECT_EQ(got.applied == 0, want.skipped) << "step " << step;
      EXPECT_EQ(got.filtered, want.filtered) << "step " << step;
      EXPECT_EQ(got.loss_divisor, want.divisor) << "step " << step;
      auto ids = run.data.order->InstancesOfStep(step - 1);
      ASSERT_TRUE(ids.ok());
      for (int64_t& id : *ids)
        if (!selected_.empty()) id = selected_.at(static_cast<size_t>(id));
      EXPECT_EQ(Sha256Hex(BytesOf(*ids)), want.instances_sha256) << "step " << step;
    }
  }

  // Largest differences over the steps are printed: the tolerance is to be compared with them.
  void ExpectSteps(int64_t first, int64_t last, double ce_limit, double norm_limit = 1e-3) const {
    const auto reference = ReadSteps(results_ / "train.csv");
    double worst_ce = 0, worst_norm = 0;
    for (int64_t step = first; step <= last; ++step) {
      const ReferenceStep& want = reference.at(step);
      const metrics::StepRecord& got = steps_.at(step);
      EXPECT_NEAR(got.loss, want.ce, ce_limit) << "step " << step;
      EXPECT_NEAR(got.grad_norm, want.grad_norm, norm_limit * want.grad_norm) << "step " << step;
      worst_ce = std::max(worst_ce, std::fabs(got.loss - want.ce));
      worst_norm = std::max(worst_norm, std::fabs(got.grad_norm / want.grad_norm - 1));
    }
    fmt::print("steps {} to {}: cross entropy within {:.3g}, gradient norm within {:.3g}\n", first,
               last, worst_ce, worst_norm);
  }

  // Single steps differ once rounding has been amplified; the curve must not.
  void ExpectCurve(int64_t last) const {
    const auto reference = ReadSteps(results_ / "train.csv");
    double worst_mean = 0, worst_heldout = 0;
    for (int64_t first = 1; first <= last; first += 50) {
      double difference = 0;
      for (int64_t step = first; step < first + 50; ++step)
        difference += (steps_.at(step).loss - reference.at(step).ce) / 50;
      EXPECT_NEAR(difference, 0, 0.02) << "steps from " << first;
      worst_mean = std::max(worst_mean, std::fabs(difference));
    }
    for (const auto& cells : ReadCsv(results_ / "heldout.csv")) {
      const std::pair<int64_t, std::string> key(std::stoll(cells[0]), cells[1]);
      ASSERT_TRUE(heldout_.contains(key)) << cells[1] << " at step " << cells[0];
      const double difference = heldout_.at(key) - std::stod(cells[3]);
      EXPECT_NEAR(difference, 0, key.first == 0 ? 5e-6 : 0.04) << cells[1] << " at " << cells[0];
      worst_heldout = std::max(worst_heldout, std::fabs(difference));
    }
    fmt::print("means of 50 steps within {:.3g}, held-out losses within {:.3g}\n", worst_mean,
               worst_heldout);
  }

  double TrainMean(int64_t first, int64_t last) const {
    double sum = 0;
    for (int64_t step = first; step <= last; ++step) sum += steps_.at(step).loss;
    return sum / static_cast<double>(last - first + 1);
  }

  // A run of 100 steps with one thing changed.
  void ExpectAblation(const Path& name, std::vector<std::string> flags) {
    flags.push_back("eval.every=50");
    flags.push_back("checkpoint.every=0");
    const auto run = Open(100, std::move(flags), "ablations" / name);
    ASSERT_NE(run, nullptr);
    const auto summary = Train(*run);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    ExpectRecipe(*run, 1, 100);
    ExpectSteps(1, 10, 5e-6);
    ExpectSteps(11, 60, 3e-5);
    ExpectCurve(100);
  }

  // Ten passes over the same text: training loss falls, held-out loss of some sets rises, and the
  // alarm says so.
  void ExpectLearntByHeart() const {
    const double fall = TrainMean(31, 50) - TrainMean(81, 100);
    std::string rises;
    for (const auto& [key, loss] : heldout_) {
      if (key.first != 100) continue;
      const double rise = loss - heldout_.at({50, key.second});
      if (rise > 0) rises += fmt::format(" {} {:+.3f}", key.second, rise);
    }
    EXPECT_GT(fall, 1);
    EXPECT_NE(rises, "");
    ASSERT_EQ(alarms_.size(), 1);
    EXPECT_EQ(alarms_[0].step, 100);
    fmt::print("between steps 50 and 100 training loss falls by {:.3f}, held-out rises:{}\n{}\n",
               fall, rises, alarms_[0].text);
  }

  TempDir temp_;
  Path results_;
  std::vector<int64_t> selected_;
  std::map<int64_t, metrics::StepRecord> steps_;
  SetLosses heldout_;
  std::vector<metrics::EventRecord> alarms_;
};

TEST_F(ReferenceRun, FirstSixtyStepsFromTheSameWeights) {
  SKIP_WITHOUT_REFERENCE();
  const auto run = Open(60, {"eval.every=0"});
  ASSERT_NE(run, nullptr);
  const auto summary = Train(*run);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ExpectRecipe(*run, 1, 60);
  ExpectSteps(1, 10, 5e-6);
  ExpectSteps(11, 60, 3e-5);
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
  ExpectRecipe(*run, kFrom + 1, kFrom + 40);
  ExpectSteps(kFrom + 1, kFrom + 40, 1e-5);
}

// By their own names: each takes minutes.
class ReferenceWholeRun : public ReferenceRun {};
class ReferenceAblation : public ReferenceRun {};

TEST_F(ReferenceWholeRun, SixHundredSteps) {
  SKIP_WITHOUT_REFERENCE();
  const auto run = Open(600);
  ASSERT_NE(run, nullptr);
  const auto summary = Train(*run);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ExpectRecipe(*run, 1, 600);
  ExpectSteps(1, 10, 5e-6);
  ExpectSteps(11, 60, 3e-5);
  ExpectCurve(600);
  EXPECT_TRUE(alarms_.empty()) << alarms_[0].text;
}

TEST_F(ReferenceAblation, BFloat16Moments) {
  SKIP_WITHOUT_REFERENCE();
  ExpectAblation("bf16_moments", {"optim.moments=bfloat16", R"(allow_override=["optim.moments"])"});
  EXPECT_TRUE(alarms_.empty()) << alarms_[0].text;
}

// The same weights as the main run, read as fewer and wider heads.
TEST_F(ReferenceAblation, ThreeHeadsOfWidth64) {
  SKIP_WITHOUT_REFERENCE();
  ExpectAblation("heads_3x64",
                 {"model.num_heads=3", "model.num_kv_heads=3", "model.head_dim=64",
                  R"(allow_override=["model.num_heads", "model.num_kv_heads", "model.head_dim"])"});
  EXPECT_TRUE(alarms_.empty()) << alarms_[0].text;
}

constexpr int64_t kSubset = 160, kBatch = 16;
constexpr uint64_t kSeed = 34521;

std::vector<int64_t> EpochOf(data::OrderKind kind, int64_t num_instances, int64_t epoch) {
  const auto order = data::GlobalOrder::Create({.kind = kind,
                                                .seed = kSeed,
                                                .num_instances = num_instances,
                                                .batch_size = num_instances,
                                                .end = data::EndPolicy::kWrap});
  EXPECT_TRUE(order.ok()) << order.status().message();
  const auto ids = (*order)->InstancesOfStep(epoch);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return *ids;
}

// The main run's first ten batches.
std::vector<int64_t> SubsetOfTheData() {
  constexpr int64_t kAll = 10138;
  std::vector<int64_t> ids = EpochOf(data::OrderKind::kOlmoCore, kAll, 0);
  ids.resize(kSubset);
  return ids;
}

// The defect: four hosts, each with a quarter of the epoch for itself, of which it then reads every
// fourth instance only, because the loader cuts once more what is cut already.
std::vector<int64_t> DoubleSharded(int64_t num_steps) {
  constexpr int64_t kHosts = 4, kRows = kBatch / kHosts, kShare = kSubset / kHosts;
  std::map<int64_t, std::vector<int64_t>> epochs;
  std::vector<int64_t> positions;
  for (int64_t step = 0; step < num_steps; ++step) {
    for (int64_t host = 0; host < kHosts; ++host) {
      for (int64_t row = 0; row < kRows; ++row) {
        const int64_t at = (step * kRows + row) * kHosts + host, epoch = at / kShare;
        if (!epochs.contains(epoch))
          epochs[epoch] = EpochOf(data::OrderKind::kMaxText, kSubset, epoch);
        positions.push_back(epochs[epoch][static_cast<size_t>(host * kShare + at % kShare)]);
      }
    }
  }
  return positions;
}

TEST_F(ReferenceAblation, RepeatedSubset) {
  SKIP_WITHOUT_REFERENCE();
  std::vector<std::string> flags = {"data.end=wrap"};
  Select(SubsetOfTheData(), flags);
  ExpectAblation("subset_control", std::move(flags));
  ExpectLearntByHeart();
}

TEST_F(ReferenceAblation, DoubleShardedSubset) {
  SKIP_WITHOUT_REFERENCE();
  const std::vector<int64_t> subset = SubsetOfTheData();
  std::vector<int64_t> ids;
  for (const int64_t position : DoubleSharded(100))
    ids.push_back(subset[static_cast<size_t>(position)]);
  std::vector<std::string> flags = {"data.order=sequential", R"(allow_override=["data.order"])"};
  Select(std::move(ids), flags);
  ExpectAblation("subset_double_sharded", std::move(flags));
  ExpectLearntByHeart();
}

}  // namespace
}  // namespace ulmus::train

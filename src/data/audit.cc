#include "data/audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "data/id_hash.h"
#include "data/loader_state.h"

namespace ulmus::data {
namespace {

constexpr int64_t kStepsPerUpdate = 256;

template <class Wanted>
std::vector<int64_t> Collect(int64_t num_instances, int64_t limit, Wanted wanted) {
  std::vector<int64_t> ids;
  for (int64_t word = 0; word * 64 < num_instances && static_cast<int64_t>(ids.size()) < limit;
       ++word) {
    for (uint64_t bits = wanted(static_cast<size_t>(word)); bits != 0; bits &= bits - 1) {
      const int64_t id = word * 64 + std::countr_zero(bits);
      if (id < num_instances && static_cast<int64_t>(ids.size()) < limit) ids.push_back(id);
    }
  }
  return ids;
}

// A stretch of steps with one number of hosts.
struct Segment {
  int64_t first_step = 0;
  int64_t num_hosts = 1;
};

struct Plan {
  std::string name;
  std::vector<Segment> segments;
};

class Audit {
 public:
  Audit(const GlobalOrder& order, const InstanceSource& source, const AuditOptions& options)
      : order_(order),
        source_(source),
        options_(options),
        batch_(static_cast<size_t>(order.batch_size())) {}

  Result<AuditReport> Run() {
    const std::vector<Plan> plans = TRY(MakePlans());
    Progress progress("audit", num_steps_ * static_cast<int64_t>(plans.size() + 1),
                      {.unit = "steps"});
    AuditReport report;
    TRY(WalkStraight(report, progress));
    report.holds = report.usage.repeated() == 0 && report.usage.missing() == report.dropped;
    for (const Plan& plan : plans) {
      report.runs.push_back(TRY(Walk(plan, progress)));
      report.holds = report.holds && report.runs.back().holds;
    }
    return report;
  }

 private:
  // Steps that read of epoch 0, and how many ids of one belong to it.
  Status CountSteps() {
    const int64_t length = order_.instances_per_epoch();
    num_steps_ = (length + order_.batch_size() - 1) / order_.batch_size();
    if (order_.num_steps().has_value()) num_steps_ = std::min(num_steps_, *order_.num_steps());
    if (order_.config().start != OrderPosition{}) return InternalError("an audit begins at step 0");
    return {};
  }
  int64_t IdsOfEpoch(int64_t step) const {
    return std::min(order_.batch_size(), order_.instances_per_epoch() - step * order_.batch_size());
  }

  BatchLayout LayoutFor(int64_t num_hosts) const {
    return {.batch_size = order_.batch_size(),
            .num_microbatches = options_.num_microbatches,
            .num_hosts = num_hosts};
  }

  Status CheckStep(int64_t step) const {
    if (step >= 0 && step <= num_steps_) return {};
    return InvalidArgumentError("step {}: an epoch has steps 0 to {}", step, num_steps_ - 1);
  }

  Result<std::vector<Plan>> MakePlans() {
    TRY(CountSteps());
    std::vector<Plan> plans;
    for (const int64_t hosts : options_.hosts) {
      TRY(Validate(LayoutFor(hosts)));
      const std::string name = fmt::format("{} host{}", hosts, hosts == 1 ? "" : "s");
      plans.push_back({name, {{0, hosts}}});
      for (const int64_t step : options_.resume_at) {
        TRY(CheckStep(step));
        plans.push_back(
            {fmt::format("{}, resumed at step {}", name, step), {{0, hosts}, {step, hosts}}});
      }
    }
    for (const AuditResize& resize : options_.resizes) {
      TRY(Validate(LayoutFor(resize.hosts_before)));
      TRY(Validate(LayoutFor(resize.hosts_after)));
      TRY(CheckStep(resize.step));
      plans.push_back({fmt::format("{} hosts, then {} from step {}", resize.hosts_before,
                                   resize.hosts_after, resize.step),
                       {{0, resize.hosts_before}, {resize.step, resize.hosts_after}}});
    }
    return plans;
  }

  Status WalkStraight(AuditReport& report, Progress& progress) {
    report.steps = num_steps_;
    report.dropped = order_.dropped_per_epoch();
    report.usage = UsageCount(source_.num_instances());
    ConsumedIds consumed;
    for (int64_t step = 0; step < num_steps_; ++step) {
      TRY(order_.InstancesOfStep(step, batch_));
      consumed.Add(batch_);
      const int64_t count = IdsOfEpoch(step);
      for (int64_t i = 0; i < count; ++i) report.usage.Add(batch_[static_cast<size_t>(i)]);
      if (step % kStepsPerUpdate == 0) progress.Add(kStepsPerUpdate);
    }
    report.consumed_hash = fmt::format("{:016x}", consumed.value());
    return {};
  }

  // The order of a run that stopped before `step` and starts again, as from a checkpoint.
  Result<std::unique_ptr<GlobalOrder>> Restart(const GlobalOrder& before, int64_t step) const {
    const LoaderState state = TRY(StateBefore(step, before, source_, 0, {}));
    const LoaderState read = TRY(ParseLoaderState(PrintLoaderState(state)));
    const OrderConfig config = TRY(Resume(read, source_, order_.config()));
    return GlobalOrder::Create(config, options_.store);
  }

  Result<AuditRun> Walk(const Plan& plan, Progress& progress) {
    AuditRun run = {.name = plan.name, .holds = true, .failure = ""};
    const GlobalOrder* order = &order_;
    std::unique_ptr<GlobalOrder> own;
    for (size_t i = 0; i < plan.segments.size(); ++i) {
      const Segment& segment = plan.segments[i];
      if (i > 0) {
        own = TRY(Restart(*order, segment.first_step));
        order = own.get();
      }
      const int64_t end =
          i + 1 < plan.segments.size() ? plan.segments[i + 1].first_step : num_steps_;
      std::string failure = TRY(WalkSegment(*order, segment, end, progress));
      if (!failure.empty()) return AuditRun{plan.name, false, std::move(failure)};
    }
    return run;
  }

  // What is wrong first, or "".
  Result<std::string> WalkSegment(const GlobalOrder& order, const Segment& segment, int64_t end,
                                  Progress& progress) {
    std::vector<std::vector<int64_t>> rows;
    for (int64_t host = 0; host < segment.num_hosts; ++host)
      rows.push_back(options_.rows_of_host(LayoutFor(segment.num_hosts), host));
    std::vector<int64_t> ids(batch_.size());
    std::vector<int64_t> together(batch_.size());
    for (int64_t step = segment.first_step; step < end; ++step) {
      TRY(order.InstancesOfStep(step, ids));
      TRY(order_.InstancesOfStep(step, batch_));
      std::string failure = PutTogether(rows, ids, together);
      if (failure.empty() && together != batch_) failure = FirstDifference(together);
      if (!failure.empty()) return fmt::format("step {}: {}", step, failure);
      if (step % kStepsPerUpdate == 0) progress.Add(kStepsPerUpdate);
    }
    return std::string();
  }

  // Each host puts the instances of its rows where they belong.
  static std::string PutTogether(const std::vector<std::vector<int64_t>>& rows,
                                 const std::vector<int64_t>& ids, std::vector<int64_t>& together) {
    constexpr int64_t kNobody = std::numeric_limits<int64_t>::min();
    std::ranges::fill(together, kNobody);
    for (size_t host = 0; host < rows.size(); ++host) {
      for (const int64_t row : rows[host]) {
        int64_t& place = together[static_cast<size_t>(row)];
        if (place != kNobody)
          return fmt::format("row {} is read by host {} and by another", row, host);
        place = ids[static_cast<size_t>(row)];
      }
    }
    const auto it = std::ranges::find(together, kNobody);
    return it == together.end() ? ""
                                : fmt::format("row {} is read by no host", it - together.begin());
  }

  std::string FirstDifference(const std::vector<int64_t>& found) const {
    const auto [want, have] = std::ranges::mismatch(batch_, found);
    return fmt::format("row {} is instance {}, the straight run has {}", want - batch_.begin(),
                       *have, *want);
  }

  const GlobalOrder& order_;
  const InstanceSource& source_;
  const AuditOptions& options_;
  int64_t num_steps_ = 0;
  std::vector<int64_t> batch_;  // of the straight run
};

// Reads whole numbers from text that comes in pieces.
class IdParser {
 public:
  IdParser(const Path& path, UsageCount& usage) : path_(path), usage_(usage) {}

  Status Add(std::string_view text) {
    for (const char c : text) {
      if (c == '\n') {
        ++line_;
        comment_ = false;
      }
      if (comment_) continue;
      if (c >= '0' && c <= '9') {
        if (value_ > (std::numeric_limits<int64_t>::max() - 9) / 10)
          return DataLossError("{}:{}: a number beyond 2^63", path_, line_);
        value_ = std::max<int64_t>(value_, 0) * 10 + (c - '0');
        continue;
      }
      End();
      comment_ = c == '#';
      if (!comment_ && std::string_view(" \t\r\n,").find(c) == std::string_view::npos)
        return DataLossError(
            "{}:{}: character {:#04x}; expected instance numbers separated by spaces, commas "
            "or line ends",
            path_, line_, static_cast<unsigned char>(c));
    }
    return {};
  }
  void End() {
    if (value_ >= 0) usage_.Add(value_);
    value_ = -1;
  }

 private:
  const Path& path_;
  UsageCount& usage_;
  int64_t value_ = -1;  // none yet
  int64_t line_ = 1;
  bool comment_ = false;
};

}  // namespace

UsageCount::UsageCount(int64_t num_instances)
    : num_instances_(num_instances),
      seen_(static_cast<size_t>((num_instances + 63) / 64)),
      seen_again_(seen_.size()) {}

void UsageCount::Add(int64_t id) {
  ++records_;
  if (id < 0 || id >= num_instances_) {
    ++unknown_;
    return;
  }
  const auto word = static_cast<size_t>(id / 64);
  const uint64_t bit = uint64_t{1} << (id % 64);
  if ((seen_[word] & bit) == 0) {
    seen_[word] |= bit;
    ++distinct_;
  } else if ((seen_again_[word] & bit) == 0) {
    seen_again_[word] |= bit;
    ++repeated_;
  }
}

std::vector<int64_t> UsageCount::MissingIds(int64_t limit) const {
  return Collect(num_instances_, limit, [this](size_t word) { return ~seen_[word]; });
}

std::vector<int64_t> UsageCount::RepeatedIds(int64_t limit) const {
  return Collect(num_instances_, limit, [this](size_t word) { return seen_again_[word]; });
}

Result<AuditResize> ParseResize(std::string_view text) {
  const size_t colon = text.find(':');
  const size_t at = text.find('@');
  const auto number = [](std::string_view digits, int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  };
  AuditResize resize;
  if (colon == std::string_view::npos || at == std::string_view::npos || at < colon ||
      !number(text.substr(0, colon), resize.hosts_before) ||
      !number(text.substr(colon + 1, at - colon - 1), resize.hosts_after) ||
      !number(text.substr(at + 1), resize.step)) {
    return InvalidArgumentError(
        "resize `{}`: expected hosts before, hosts after and the step, as 8:4@1000", text);
  }
  return resize;
}

Result<AuditReport> AuditEpoch(const GlobalOrder& order, const InstanceSource& source,
                               const AuditOptions& options) {
  return Audit(order, source, options).Run();
}

Result<UsageCount> CountLoggedIds(const Path& path, int64_t num_instances) {
  constexpr int64_t kMost = int64_t{1} << 34;  // 4 GiB of counts
  if (num_instances < 1 || num_instances > kMost)
    return InvalidArgumentError("{} instances: expected 1 .. {}", num_instances, kMost);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoError(errno, path, "open");
  UsageCount usage(num_instances);
  IdParser parser(path, usage);
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t count = read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, path, "read");
    if (count == 0) break;
    TRY(parser.Add({buffer.data(), static_cast<size_t>(count)}));
  }
  parser.End();
  return usage;
}

}  // namespace ulmus::data

#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/thread.h"

namespace ulmus::data {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rows that a thread takes at a time: enough to keep the lock out of the way, few enough to share a
// batch.
constexpr int64_t kRowsPerTake = 4;

}  // namespace

// A ring of slots. Slot s holds the batch of a step with step % slots == s; threads take rows of
// the earliest step that has any left, so batches finish nearly in order and the caller waits for
// one step only.
class Loader::State {
 public:
  State(const InstanceSource& source, const GlobalOrder& order, const LoaderOptions& options)
      : source_(source), order_(order), options_(options), next_step_(options.first_step) {
    const std::vector<int64_t> rows = RowsOfHost(options.layout, options.host);
    for (int64_t i = 0; i < options.read_ahead; ++i) {
      slots_.push_back(std::make_unique<Slot>());
      slots_.back()->batch = MakeBatch(rows, source.sequence_length(), options.batch);
      slots_.back()->counts.resize(rows.size());
    }
    end_step_ = order.num_steps();
    if (options.end_step.has_value())
      end_step_ = std::min(*options.end_step, end_step_.value_or(*options.end_step));
    Restart(next_step_);
    for (int64_t i = 0; i < options.num_threads; ++i)
      threads_.push_back(StartThread(fmt::format("loader-{}", i), [this] { Work(); }));
  }

  ~State() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    threads_.clear();
  }

  Result<const Batch*> Next() {
    const Clock::time_point start = Clock::now();
    std::unique_lock lock(mutex_);
    stats_.last_wait_s = 0;
    if (in_use_) {
      in_use_ = false;
      Plan(SlotOf(next_step_ - 1), next_step_ - 1 + NumSlots());
      work_.notify_all();
    }
    if (AtEnd(next_step_)) return static_cast<const Batch*>(nullptr);
    Slot& slot = SlotOf(next_step_);
    if (!slot.Done()) {
      done_.wait(lock, [&slot] { return slot.Done(); });
      stats_.last_wait_s = SecondsSince(start);
      stats_.wait_s += stats_.last_wait_s;
    }
    if (!slot.error.ok())
      return slot.error.WithContext(fmt::format("batch of step {}", next_step_));
    Summarize(slot.counts, source_.sequence_length(), options_.batch.divisor, slot.batch);
    ++stats_.batches;
    stats_.tokens += slot.batch.tokens.num_elements();
    ++next_step_;
    in_use_ = true;
    return static_cast<const Batch*>(&slot.batch);
  }

  void SeekTo(int64_t step) {
    std::unique_lock lock(mutex_);
    // Rows that threads are at must be out of the buffers first.
    for (const auto& slot : slots_) slot->next_row = slot->num_rows();
    done_.wait(lock, [this] {
      return std::ranges::all_of(slots_, [](const auto& slot) { return slot->busy == 0; });
    });
    in_use_ = false;
    Restart(step);
    lock.unlock();
    work_.notify_all();
  }

  int64_t next_step() const {
    std::lock_guard lock(mutex_);
    return next_step_;
  }
  LoaderStats stats() const {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Slot {
    Batch batch;
    std::vector<RowCounts> counts;
    bool planned = false;  // has a step
    bool has_ids = false;  // its first thread asks the order for them
    int64_t next_row = 0;  // first row that no thread has taken
    int64_t busy = 0;      // threads at work on it
    Status error;          // of the first row that failed
    int64_t error_row = 0;

    int64_t num_rows() const { return static_cast<int64_t>(batch.rows.size()); }
    bool Done() const { return planned && busy == 0 && (next_row >= num_rows() || !error.ok()); }
    bool HasWork() const {
      return planned && error.ok() && next_row < num_rows() && (has_ids || busy == 0);
    }
  };

  int64_t NumSlots() const { return static_cast<int64_t>(slots_.size()); }
  Slot& SlotOf(int64_t step) { return *slots_[static_cast<size_t>(step % NumSlots())]; }
  bool AtEnd(int64_t step) const { return end_step_.has_value() && step >= *end_step_; }

  void Plan(Slot& slot, int64_t step) {
    slot.batch.step = step;
    slot.planned = !AtEnd(step);
    slot.has_ids = false;
    slot.next_row = 0;
    slot.error = Status();
  }

  void Restart(int64_t step) {
    next_step_ = step;
    for (int64_t i = 0; i < NumSlots(); ++i) Plan(SlotOf(step + i), step + i);
  }

  // The slot of the earliest step that has work.
  Slot* FindWork() {
    Slot* found = nullptr;
    for (const auto& slot : slots_) {
      if (slot->HasWork() && (found == nullptr || slot->batch.step < found->batch.step))
        found = slot.get();
    }
    return found;
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Slot* slot = nullptr;
      work_.wait(lock, [&] { return stopping_ || (slot = FindWork()) != nullptr; });
      if (stopping_) return;
      ++slot->busy;
      int64_t row = 0;
      const Status status = slot->has_ids ? FillRows(*slot, row, lock) : FetchIds(*slot, lock);
      --slot->busy;
      // Whichever thread comes first, the error is that of the first row that failed.
      if (!status.ok() && (slot->error.ok() || row < slot->error_row)) {
        slot->error = status;
        slot->error_row = row;
      }
      if (slot->busy == 0) {
        done_.notify_all();
        work_.notify_all();
      }
    }
  }

  // Lets go of the lock while the order is asked.
  Status FetchIds(Slot& slot, std::unique_lock<std::mutex>& lock) {
    const int64_t step = slot.batch.step;
    lock.unlock();
    slot.batch.global_ids.resize(static_cast<size_t>(order_.batch_size()));
    const Status status = order_.InstancesOfStep(step, slot.batch.global_ids);
    lock.lock();
    slot.has_ids = true;
    work_.notify_all();
    return status;
  }

  // Takes rows and lets go of the lock while it fills them. `row` is the one that failed.
  Status FillRows(Slot& slot, int64_t& row, std::unique_lock<std::mutex>& lock) {
    row = slot.next_row;
    const int64_t end = std::min(row + kRowsPerTake, slot.num_rows());
    slot.next_row = end;
    lock.unlock();
    Status status;
    for (; row < end; ++row) {
      Result<RowCounts> counts = FillRow(source_, options_.batch, slot.batch, row);
      if (!counts.ok()) {
        status = counts.error().WithContext(fmt::format("instance {}", slot.batch.id(row)));
        break;
      }
      slot.counts[static_cast<size_t>(row)] = *counts;
    }
    lock.lock();
    return status;
  }

  const InstanceSource& source_;
  const GlobalOrder& order_;
  const LoaderOptions options_;
  std::optional<int64_t> end_step_;

  mutable std::mutex mutex_;  // guards what follows; rows that are taken belong to their thread
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<std::unique_ptr<Slot>> slots_;
  int64_t next_step_ = 0;
  bool in_use_ = false;  // the caller has the batch of next_step_ - 1
  bool stopping_ = false;
  LoaderStats stats_;
  std::vector<std::jthread> threads_;
};

Loader::Loader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Loader::~Loader() = default;

Result<std::unique_ptr<Loader>> Loader::Create(const InstanceSource& source,
                                               const GlobalOrder& order,
                                               const LoaderOptions& options) {
  LoaderOptions checked = options;
  checked.layout.batch_size = order.batch_size();
  TRY(Validate(checked.layout));
  if (options.host < 0 || options.host >= options.layout.num_hosts) {
    return InvalidArgumentError("host {} of {}: hosts count from 0", options.host,
                                options.layout.num_hosts);
  }
  if (options.read_ahead < 2 || options.num_threads < 1) {
    return InvalidArgumentError(
        "loader: read_ahead = {} and {} threads; expected at least 2 batches and 1 thread",
        options.read_ahead, options.num_threads);
  }
  if (options.batch.filter_ngrams) TRY(Validate(options.batch.filter));
  CHECK(order.config().num_instances == source.num_instances(),
        "an order of {} instances over a source of {}", order.config().num_instances,
        source.num_instances());
  TRY(order.PositionOfStep(options.first_step));
  return std::unique_ptr<Loader>(new Loader(std::make_unique<State>(source, order, checked)));
}

Result<const Batch*> Loader::Next() { return state_->Next(); }
void Loader::SeekTo(int64_t step) { state_->SeekTo(step); }
int64_t Loader::next_step() const { return state_->next_step(); }
LoaderStats Loader::stats() const { return state_->stats(); }

}  // namespace ulmus::data

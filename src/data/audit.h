// Proof that a run reads each instance of an epoch once, whatever its hosts, stops and resizes; and
// a verdict on ids that another program logged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/batch.h"
#include "data/instance_source.h"
#include "data/order.h"

namespace ulmus::data {

// Counts how often each of `num_instances` ids is used: 2 bits each.
class UsageCount {
 public:
  explicit UsageCount(int64_t num_instances);
  void Add(int64_t id);

  int64_t num_instances() const { return num_instances_; }
  int64_t used_once() const { return distinct_ - repeated_; }
  int64_t repeated() const { return repeated_; }  // instances used more than once
  int64_t missing() const { return num_instances_ - distinct_; }
  int64_t records() const { return records_; }  // ids added
  int64_t unknown() const { return unknown_; }  // ids that are no instance
  // The lowest instances that are missing, or used more than once, `limit` at most.
  std::vector<int64_t> MissingIds(int64_t limit) const;
  std::vector<int64_t> RepeatedIds(int64_t limit) const;

 private:
  int64_t num_instances_;
  std::vector<uint64_t> seen_;
  std::vector<uint64_t> seen_again_;
  int64_t distinct_ = 0;
  int64_t repeated_ = 0;
  int64_t records_ = 0;
  int64_t unknown_ = 0;
};

struct AuditResize {
  int64_t hosts_before = 1;
  int64_t hosts_after = 1;
  int64_t step = 0;
};
// "8:4@1000"
Result<AuditResize> ParseResize(std::string_view text);

struct AuditOptions {
  std::vector<int64_t> hosts = {1};
  std::vector<int64_t> resume_at = {};  // steps, for each number of hosts
  std::vector<AuditResize> resizes = {};
  int64_t num_microbatches = 1;
  PermutationStoreOptions store = {};  // of the orders that resumed runs make
  // Rows that a host reads; another function shows what a wrong one does.
  std::function<std::vector<int64_t>(const BatchLayout&, int64_t)> rows_of_host = RowsOfHost;
};

// One way through the epoch.
struct AuditRun {
  std::string name;  // "4 hosts, resumed at step 100"
  bool holds = false;
  std::string failure;  // what was found where, and what was expected
};

struct AuditReport {
  int64_t steps = 0;
  int64_t dropped = 0;  // instances that the order leaves out of an epoch, as its reference does
  UsageCount usage{0};
  std::string consumed_hash;  // of all ids in order, 16 hexadecimal digits
  std::vector<AuditRun> runs;
  bool holds = false;  // no instance repeated, none missing beyond `dropped`, all runs alike
};

// Walks one epoch of `order`, then walks it again for each number of hosts, stop and resize: each
// step's batch is put together from the slices of all hosts and compared with the global batch. A
// resumed run goes through the text of a loader state and makes an order of its own.
Result<AuditReport> AuditEpoch(const GlobalOrder& order, const InstanceSource& source,
                               const AuditOptions& options);

// Ids as another program logged them: text, whole numbers separated by spaces, commas or line ends,
// `#` to the end of a line ignored. Memory does not depend on the file. kDataLoss names the line.
Result<UsageCount> CountLoggedIds(const Path& path, int64_t num_instances);

}  // namespace ulmus::data

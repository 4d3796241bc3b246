#include "checkpoint/copy_tensors.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/thread.h"
#include "checkpoint/contained_file.h"  // Quoted
#include "checkpoint/element_cast.h"

namespace ulmus::checkpoint {
namespace {

struct Piece {
  size_t copy = 0;
  bool first = false;  // of its tensor
  Status status;       // of reading it
  std::vector<std::byte> bytes;
};

void CheckCopy(const TensorInfo& source, const TensorInfo& target) {
  const Dims& from = source.type.shape.dims();
  const Dims& to = target.type.shape.dims();
  CHECK(from.size() == to.size() &&
            (from.empty() || std::equal(from.begin() + 1, from.end(), to.begin() + 1)),
        "{}: {} written as {}", target.name, source.type.ToString(), target.type.ToString());
  CHECK(CanCast(source.type.dtype, target.type.dtype), "{}: {} written as {}", target.name,
        Name(source.type.dtype), Name(target.type.dtype));
}

// Fills buffers in order. Two queues of buffers, full and empty, bound the memory.
class Reader {
 public:
  Reader(const TensorSource& source, std::span<const TensorCopy> copies, const CopyOptions& options,
         BoundedQueue<Piece>& full, BoundedQueue<std::vector<std::byte>>& empty)
      : source_(source), copies_(copies), options_(options), full_(full), empty_(empty) {}

  void Run() {
    for (size_t i = 0; i < copies_.size(); ++i)
      if (!ReadTensor(i)) break;
    full_.Close();
  }

 private:
  bool ReadTensor(size_t i) {
    const TensorInfo& from = source_.tensors()[static_cast<size_t>(copies_[i].source_index)];
    const TensorInfo& to = copies_[i].target;
    const int64_t available = from.type.shape.num_elements();
    const int64_t count = to.type.shape.num_elements();
    const int64_t step = std::max<int64_t>(
        1, options_.buffer_bytes / std::max(SizeBytes(from.type.dtype), SizeBytes(to.type.dtype)));
    int64_t first = 0;
    do {
      std::optional<std::vector<std::byte>> buffer = empty_.Pop();
      if (!buffer) return false;  // the writer gave up
      const int64_t n = std::min(step, count - first);
      Piece piece{i, first == 0, Status(), std::move(*buffer)};
      piece.bytes.resize(static_cast<size_t>(n * SizeBytes(to.type.dtype)));
      const int64_t stored = std::clamp<int64_t>(available - first, 0, n);
      piece.status = Fill(copies_[i].source_index, from, to, first, stored, piece.bytes);
      const bool ok = piece.status.ok();
      if (!full_.Push(std::move(piece)) || !ok) return false;
      first += n;
    } while (first < count);
    return true;
  }

  // `stored` elements from the source, then zeros.
  Status Fill(int64_t index, const TensorInfo& from, const TensorInfo& to, int64_t first,
              int64_t stored, std::span<std::byte> out) {
    const auto used = static_cast<size_t>(stored * SizeBytes(to.type.dtype));
    if (used < out.size()) std::memset(out.data() + used, 0, out.size() - used);
    if (stored == 0) return Status();
    if (from.type.dtype == to.type.dtype) return source_.Read(index, first, out.first(used));
    scratch_.resize(static_cast<size_t>(stored * SizeBytes(from.type.dtype)));
    TRY(source_.Read(index, first, scratch_));
    const int64_t overflows =
        CastElements(from.type.dtype, to.type.dtype, scratch_, out.first(used));
    if (overflows > 0) {
      return OutOfRangeError(
          "tensor {}: {} finite values from element {} on become infinite in {}; choose a type "
          "that "
          "holds them, such as {}, theirs",
          Quoted(to.name), overflows, first, Name(to.type.dtype), Name(from.type.dtype));
    }
    return Status();
  }

  const TensorSource& source_;
  const std::span<const TensorCopy> copies_;
  const CopyOptions& options_;
  BoundedQueue<Piece>& full_;
  BoundedQueue<std::vector<std::byte>>& empty_;
  std::vector<std::byte> scratch_;
};

Status WritePieces(std::span<const TensorCopy> copies, TensorSink& sink, const CopyOptions& options,
                   BoundedQueue<Piece>& full, BoundedQueue<std::vector<std::byte>>& empty) {
  int64_t done_bytes = 0;
  while (std::optional<Piece> piece = full.Pop()) {
    TRY(piece->status);
    if (options.stop && options.stop()) return CancelledError("stopped after {} bytes", done_bytes);
    if (piece->first) TRY(sink.Begin(copies[piece->copy].target));
    if (!piece->bytes.empty()) TRY(sink.Append(piece->bytes));
    done_bytes += static_cast<int64_t>(piece->bytes.size());
    if (options.progress) options.progress(done_bytes);
    empty.Push(std::move(piece->bytes));
  }
  return Status();
}

}  // namespace

Status CopyTensors(const TensorSource& source, std::span<const TensorCopy> copies, TensorSink& sink,
                   const CopyOptions& options) {
  for (const TensorCopy& copy : copies)
    CheckCopy(source.tensors()[static_cast<size_t>(copy.source_index)], copy.target);
  BoundedQueue<Piece> full(options.num_buffers);
  BoundedQueue<std::vector<std::byte>> empty(options.num_buffers);
  for (int64_t i = 0; i < options.num_buffers; ++i) {
    std::vector<std::byte> buffer;
    buffer.reserve(static_cast<size_t>(options.buffer_bytes));
    empty.Push(std::move(buffer));
  }
  Reader reader(source, copies, options, full, empty);
  const std::jthread thread = StartThread("tensor-reader", [&] { reader.Run(); });
  const Status status = WritePieces(copies, sink, options, full, empty);
  full.Close();
  empty.Close();
  return status;
}

}  // namespace ulmus::checkpoint

// One file of token ids, or of label-mask bytes, read at any place by any thread. Headerless
// little-endian integers (OLMo's "npy") or real `.npy`; docs/formats/token_files.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/file.h"
#include "base/status.h"
#include "tensor/dtype.h"

struct stat;  // of <sys/stat.h>

namespace ulmus::data {

struct TokenFileOptions {
  DType dtype = DType::kU32;  // of a headerless file; u8, u16, u32, u64 or their signed kin
  int64_t vocab_size = 0;     // ids must be below; 0: they must fit int32
  bool map = true;            // false: read with system calls, which takes no address space
};

// The file is mapped at the first read. Its size, inode and time of change are taken at Open: if
// they differ then, it was replaced, which is kDataLoss. It must not be cut while mapped (SIGBUS).
class TokenFile {
 public:
  // kDataLoss if the size is no whole number of elements or does not fit the npy header,
  // kInvalidArgument if the file is no array of integers, kNotFound.
  static Result<std::unique_ptr<TokenFile>> Open(const Path& path,
                                                 const TokenFileOptions& options = {});
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const Path& path() const { return path_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t size_bytes() const { return size_bytes_; }  // of the file, header included
  int64_t data_offset() const { return data_offset_; }
  DType dtype() const { return options_.dtype; }  // of an npy file: its own

  // Tokens [first, first + tokens.size()), which must exist (CHECK). kDataLoss names the first id
  // outside the vocabulary.
  Status Read(int64_t first, std::span<int32_t> tokens) const;
  // The same elements as 0 or 1 (label masks).
  Status ReadMask(int64_t first, std::span<uint8_t> mask) const;
  // Raw bytes of the file.
  Status ReadBytes(int64_t offset, std::span<std::byte> bytes) const;

  // Gives the pages of the map back to the page cache: they no longer count as this process's
  // memory. Reads may go on meanwhile.
  void ReleaseResident() const;

 private:
  struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t size_bytes = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  TokenFile(Path path, const TokenFileOptions& options, const Identity& identity);
  static Identity IdentityOf(const struct ::stat& info);
  Result<FileDescriptor> Reopen() const;
  Result<const std::byte*> Map() const;
  Status ReadUnmapped(int64_t offset, std::span<std::byte> bytes) const;
  template <class Element, class Consume>
  Status ForBlocks(int64_t first, int64_t count, Consume consume) const;
  template <class Element>
  Status ReadAs(int64_t first, std::span<int32_t> tokens) const;
  template <class Element>
  Status ReadMaskAs(int64_t first, std::span<uint8_t> mask) const;
  Status OutsideVocabulary(int64_t first, std::span<const int32_t> tokens, uint64_t id) const;

  Path path_;
  TokenFileOptions options_;
  Identity identity_;
  int64_t size_bytes_ = 0;
  int64_t data_offset_ = 0;
  int64_t num_tokens_ = 0;
  int64_t limit_ = 0;          // ids are below
  mutable std::mutex mutex_;   // guards making the map and fd_
  mutable FileDescriptor fd_;  // of a file that is not mapped
  mutable std::atomic<const std::byte*> data_ = nullptr;
};

}  // namespace ulmus::data

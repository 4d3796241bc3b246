// Where arrays and their side files live: named objects that are written once, front to back, and
// read at any offset. Local directories are one such place; an object store is another class here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::checkpoint {

// Any thread.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual int64_t size_bytes() const = 0;
  // Fills `out` from `offset` on. kDataLoss if the object ends before.
  virtual Status Read(int64_t offset, std::span<std::byte> out) const = 0;
};

// One thread at a time.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;  // without Close() the object may be missing or cut short
  virtual Status Write(std::span<const std::byte> bytes) = 0;
  Status Write(std::string_view text) {
    return Write(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  // The object is complete under its key, and durable after the store's Sync().
  virtual Status Close() = 0;
};

// Keys are relative paths with "/". Any thread.
class ReadStore {
 public:
  virtual ~ReadStore() = default;
  virtual Result<std::unique_ptr<ObjectReader>> Open(const std::string& key) const = 0;
  // "where/key" for messages.
  virtual std::string Describe(const std::string& key) const = 0;
  // Every object with its size; kDataLoss for anything that is no plain object (links, devices).
  virtual Result<std::map<std::string, int64_t>> List() const = 0;

  // A small object in one piece. kDataLoss if it is larger than `limit_bytes`.
  Result<std::string> ReadText(const std::string& key, int64_t limit_bytes) const;
};

// Any thread.
class WriteStore {
 public:
  virtual ~WriteStore() = default;
  virtual Result<std::unique_ptr<ObjectWriter>> Create(const std::string& key) = 0;
  virtual std::string Describe(const std::string& key) const = 0;
  // Everything closed before is durable once this returns ok.
  virtual Status Sync() = 0;

  Status WriteText(const std::string& key, std::string_view text);
};

// A directory of files. Links below it are refused, so that a directory from elsewhere cannot make
// a reader open what lies outside.
class LocalReadStore : public ReadStore {
 public:
  explicit LocalReadStore(Path root) : root_(std::move(root)) {}
  Result<std::unique_ptr<ObjectReader>> Open(const std::string& key) const override;
  std::string Describe(const std::string& key) const override;
  Result<std::map<std::string, int64_t>> List() const override;

 private:
  Path root_;
};

struct LocalWriteOptions {
  bool sync = true;            // off in tests only: Sync() then does nothing
  int64_t expected_bytes = 0;  // of everything that will be written, for the text of a full disk
};

// Creates parents as needed. Dirty pages are handed to the disk as they come; Sync() is one syncfs,
// as thousands of fsync calls for small files would each wait for the journal.
class LocalWriteStore : public WriteStore {
 public:
  LocalWriteStore(Path root, LocalWriteOptions options);
  Result<std::unique_ptr<ObjectWriter>> Create(const std::string& key) override;
  std::string Describe(const std::string& key) const override;
  Status Sync() override;

  struct Shared;  // what open writers and the store have in common

 private:
  Path root_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ulmus::checkpoint

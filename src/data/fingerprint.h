// The identity that OLMo-core gives a dataset, version v2.0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/instance_source.h"  // DocumentRule
#include "tensor/dtype.h"

namespace ulmus::data {

// What the tokenizer fixes. OLMo-core: TokenizerConfig.dolma2().
struct TokenizerIds {
  int64_t vocab_size = 100278;
  int64_t eos = 100257;
  int64_t pad = 100277;
  int64_t bos = -1;  // -1: none
  DocumentRule documents() const { return {.eos = eos, .bos = bos}; }
};

struct FileSize {
  Path path;  // only its last part counts: moving a folder keeps the fingerprint
  int64_t size_bytes = 0;
};

// A field's value as Python prints it: `<class 'numpy.uint32'>`, `None`.
std::string PythonText(DType dtype);
std::string PythonOrNone(int64_t value, int64_t none);

// SHA-256, hexadecimal, over "class=<name>", "<field>=<value>," each, "path=<name>,size=<bytes>,"
// each. Source: OLMo-core data/numpy_dataset.py, NumpyDatasetBase.fingerprint.
std::string OlmoCoreFingerprint(std::string_view class_name,
                                std::span<const std::pair<std::string, std::string>> fields,
                                std::span<const FileSize> files);

}  // namespace ulmus::data

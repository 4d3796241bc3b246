// Whether a token file is what its reader takes it for: the width of its integers, its vocabulary,
// its end-of-document tokens. Looks at a sample.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/fingerprint.h"  // TokenizerIds
#include "data/token_files.h"
#include "tensor/dtype.h"

namespace ulmus::data {

struct SniffReport {
  DType dtype = DType::kU32;  // what the file is read as (an npy file: its own)
  std::optional<DType>
      likely;  // what it looks like; none if it looks like nothing, or is too small
  int64_t size_bytes = 0;
  int64_t sampled = 0;        // tokens looked at
  int64_t outside = 0;        // of those, ids of at least vocab_size
  int64_t num_eos = 0;        // of those, the EOS
  double zero_high_half = 0;  // share of odd tokens that could be the high half of the one before
  std::vector<std::string> warnings;  // odd, but no proof: hardly any or too many EOS
};

// A width that is too wide gives ids beyond the vocabulary at once, so the widest one without any
// is the file's. Looks at so many blocks of 8 KiB from all over it. kNotFound and kin; odd sizes
// are no error here.
Result<SniffReport> SniffTokens(const Path& path, DType dtype, const TokenizerIds& ids,
                                int64_t blocks = 64);

// kDataLoss, with the likely dtype, if the report speaks against the dtype the file is read as.
Status RefuseWrongWidth(const Path& path, const SniffReport& report, const TokenizerIds& ids);

// Both at once; warnings are logged.
Status CheckTokens(const Path& path, DType dtype, const TokenizerIds& ids);

// CheckTokens of all files from several threads, the smaller a sample of each the more there are.
// Files that do not exist are passed over: TokenFiles::Open names all of them at once.
Status CheckAllTokens(std::span<const TokenFileSpec> specs, DType dtype, const TokenizerIds& ids);

}  // namespace ulmus::data

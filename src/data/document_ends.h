// Where the documents of a token file end.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/instance_source.h"  // DocumentRule
#include "data/token_files.h"

namespace ulmus::data {

// End of document k (past its EOS) in tokens; document k begins where k-1 ends. Tokens after the
// last end belong to no document. Reads the file once, or its sidecar if it has one.
Result<std::vector<int64_t>> FindDocumentEnds(const TokenFiles& files, int64_t file,
                                              const DocumentRule& rule);

// The same from the tokens alone.
Result<std::vector<int64_t>> ScanDocumentEnds(const TokenFiles& files, int64_t file,
                                              const DocumentRule& rule);

// `part.npy` -> `part.csv.gz`.
Path SidecarPath(const Path& tokens);
// Lines `start,end[,more]`; documents must follow each other without a gap and end within the file.
// kDataLoss names the line.
Result<std::vector<int64_t>> ParseSidecar(std::string_view csv, int64_t num_tokens,
                                          std::string_view origin);
// The same from a gzip file, unpacked piece by piece.
Result<std::vector<int64_t>> ReadSidecar(const Path& path, int64_t num_tokens);

}  // namespace ulmus::data

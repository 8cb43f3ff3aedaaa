// A random checkpoint in a folder of its own, as `tessera synth` writes it, removed with the object.
#pragma once

#include <memory>
#include <string>

#include "core/threads.h"
#include "model/synth_shape.h"
#include "model/synthesize.h"
#include "support/temporary_folder.h"
#include "tokenizer/synthetic_tokenizer.h"
#include "tokenizer/token_map.h"

namespace tessera::testing {

class SynthModel {
 public:
  // Throws Error naming what is wrong with the shape, or the room that is needed.
  explicit SynthModel(const SynthShape& shape) {
    const std::string tokenizer = SyntheticTokenizerJson(SynthVocabSize(shape));
    const int64_t num_compressed =
        SynthHasEngram(shape) ? NumCompressedIds(CompressedTokenMap(Tokenizer::Parse(tokenizer, "tokenizer.json"))) : 0;
    SynthWriting writing;
    writing.num_workers = NumUsableCores();
    WriteSynth(PlanSynth(SynthConfigJson(shape, num_compressed), {{"tokenizer.json", tokenizer}}), folder_.path(), writing);
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace tessera::testing

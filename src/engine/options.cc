#include "engine/options.h"

namespace tessera {

OptionTable EngineOptionTable(EngineOptions& options) {
  return {
      {"numerics", "how activations are kept and rounded", EnumOf(&options.numerics, {"bf16", "reference", "fp32"})},
      {"threads", "workers per rank; 0: one per usable physical core", &options.threads, {0, 1024}},
      {"ranks", "processes on this host", &options.ranks, {1, 4096}},
      {"comm", "how ranks talk", EnumOf(&options.comm, {"auto", "shm", "mpi"})},
      {"engram", "where the Engram tables are read from", EnumOf(&options.engram, {"auto", "private", "shared", "sharded", "file"})},
      {"load", "map the weights where they are, or copy them", EnumOf(&options.load, {"mmap", "copy"})},
      {"max_seqs", "sequences that run at once", &options.max_seqs, {1, 4096}},
      {"max_context", "tokens a sequence may have; 0: the model's, at most 32768", &options.max_context, {0, 1e9}},
      {"prefill_rows", "rows of prompts that one step takes", &options.prefill_rows, {1, 65536}},
      {"kv_cache_mib", "MiB of caches for running sequences together; 0: what the host has left", &options.kv_cache_mib, {0, 1e9}},
      {"prefix_cache_mib", "MiB for the states of earlier texts that a prompt may begin with; 0: every prompt is computed whole",
       &options.prefix_cache_mib, {0, 1e9}},
      {"queue_limit", "requests that may wait for a slot", &options.queue_limit, {0, 1e6}},
  };
}

}  // namespace tessera

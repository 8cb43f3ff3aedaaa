#!/usr/bin/env python3
"""Compares any (small) checkpoint with dsref.py, the executable reference, layer by layer. Needs torch, numpy and tokenizers.

  build/release/tessera eval -m MODEL --numerics fp32 --ids-file IDS.json --dump DUMP.safetensors --dump-layers
  tests/reference/python/compare.py MODEL IDS.json DUMP.safetensors

Prints, for every list of ids, how far logits and streams are apart and how many choices (experts, selected entries, candidates, Engram rows)
differ. dsref.py holds all weights in fp32 and evaluates whole sequences: it is for small checkpoints and short lists. Exit code 1 when
logits differ by more than --tolerance, or any choice differs."""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import dsref  # noqa: E402

NUMPY = {"F32": np.float32, "I64": np.int64}


def read_dump(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + length + begin:8 + length + end], NUMPY[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def id_sets(rows):
    return [sorted(int(x) for x in row if x >= 0) for row in rows]


def chosen(mask):
    """Row by row the indices where a boolean matrix is true."""
    return [np.flatnonzero(row).tolist() for row in mask.numpy()]


def compare_list(model, ids, dump, i):
    trace = []
    logits = model.forward(ids, trace).numpy()
    logit_error = float(np.abs(logits - dump[f"logits.{i}"]).max())
    stream_error, differing, compared = 0.0, 0, 0
    for layer, values in enumerate(trace):
        suffix = f".{i}.{layer}"
        stream_error = max(stream_error, float(np.abs(values["streams"].numpy() - dump["streams" + suffix]).max()))
        pairs = [(id_sets(values["router_ids"].numpy()), id_sets(dump["experts" + suffix]))]
        for key, name in (("selected", "selected"), ("candidates", "candidates")):
            if key in values:
                pairs.append((chosen(values[key]), id_sets(dump[name + suffix])))
        if "engram_rows" in values:
            pairs.append((values["engram_rows"].numpy().tolist(), dump["engram_rows" + suffix].tolist()))
        for theirs, ours in pairs:
            compared += len(theirs)
            differing += sum(a != b for a, b in zip(theirs, ours))
    return logit_error, stream_error, differing, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("ids_file")
    parser.add_argument("dump")
    parser.add_argument("--tolerance", type=float, default=5e-2, help="largest difference of a logit (default: 5e-2)")
    arguments = parser.parse_args()
    lists = json.loads(Path(arguments.ids_file).read_text())
    if lists and not isinstance(lists[0], list):
        lists = [lists]
    dump = read_dump(arguments.dump)
    torch.set_num_threads(1)
    model = dsref.DSRef(arguments.model)
    failed = False
    for i, ids in enumerate(lists):
        logit_error, stream_error, differing, compared = compare_list(model, ids, dump, i)
        print(f"list {i}, {len(ids)} tokens: logits within {logit_error:.2e}, streams within {stream_error:.2e}, "
              f"{differing} of {compared} choices differ")
        failed |= logit_error > arguments.tolerance or differing > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The parity checks as a user runs them: `tessera eval --dump --dump-layers` on the golden checkpoints against the vectors of the
independent reference, and dumps that do not change by a byte when the list is cut otherwise. (tests/reference/python/compare.py does
the same with any checkpoint and dsref.py.)"""

import array
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

BINARY = sys.argv[1]
LOGIT_MAX, LOGIT_MEAN = 5e-2, 2e-3  # tests/golden/README.md
CODES = {"F32": "f", "I32": "i", "I64": "q"}


def read(path):
    """{name: (shape, array)} of a safetensors file, the formats of vectors and dumps only."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = array.array(CODES[entry["dtype"]])
            values.frombytes(data[8 + length + begin:8 + length + end])
            tensors[name] = (entry["shape"], values)
    return tensors


def expect(condition, *what):
    if not condition:
        sys.exit(f"failed: {' '.join(map(str, what))}")


def rows(tensor):
    shape, values = tensor
    width = len(values) // shape[0] if shape[0] else 0
    return [values[i * width:(i + 1) * width] for i in range(shape[0])]


def close(what, ours, theirs):
    errors = [abs(a - b) for our, their in zip(ours, theirs) for a, b in zip(our, their)]
    expect(len(errors) > 0 and max(errors) <= LOGIT_MAX and sum(errors) / len(errors) <= LOGIT_MEAN, what, max(errors))
    return max(errors)


def evaluate(folder, model, ids, *options):
    ids_file, dump = folder / "ids.json", folder / "dump.safetensors"
    ids_file.write_text(json.dumps(ids))
    result = subprocess.run([BINARY, "eval", "-m", model, "--ids-file", ids_file, "--dump", dump, "--dump-layers", *options],
                            capture_output=True, text=True, timeout=300)
    expect(result.returncode == 0, result.stderr)
    return dump


def check_model(folder, name):
    model = Path("tests/golden") / name
    golden = read(model / "vectors" / "golden.safetensors")
    prompts = [key[:-4] for key in golden if key.endswith(".ids")]
    ids = [list(golden[f"{prompt}.ids"][1]) for prompt in prompts]
    dump = evaluate(folder, model, ids, "--numerics", "fp32")
    ours, bytes_whole = read(dump), dump.read_bytes()
    worst, lists = 0, 0
    for i, prompt in enumerate(prompts):
        positions = golden[f"{prompt}.logits_pos"][1]
        logits = rows(ours[f"logits.{i}"])
        worst = max(worst, close(f"{name} {prompt} logits", [logits[p] for p in positions], rows(golden[f"{prompt}.logits"])))
        for key in [key for key in golden if key.startswith(f"{prompt}.L")]:
            layer, what = key[len(prompt) + 2:].split(".")
            theirs = rows(golden[key])
            if what == "streams":
                kept = range(len(ids[i])) if len(theirs) == len(ids[i]) else positions[-len(theirs):]
                close(key, [rows(ours[f"streams.{i}.{layer}"])[p] for p in kept], theirs)
            names = {"router_ids": "experts", "selected": "selected", "candidates": "candidates", "engram_rows": "engram_rows"}
            if what in names:
                mine = rows(ours[f"{names[what]}.{i}.{layer}"])
                order = list if what == "engram_rows" else sorted
                for position, (a, b) in enumerate(zip(mine, theirs)):
                    expect(order(x for x in a if x >= 0) == order(x for x in b if x >= 0), key, "position", position, list(a), list(b))
                lists += len(theirs)
    for options in (("--chunk", "7"), ("--chunk", "64", "--decode-from", "30"), ("--prefill-rows", "5"), ("--threads", "1")):
        expect(evaluate(folder, model, ids, "--numerics", "fp32", *options).read_bytes() == bytes_whole, name, options, "changed the dump")
    print(f"{name}: {len(prompts)} prompts, logits within {worst:.1e}, {lists} lists of choices equal, dumps equal however cut")


with tempfile.TemporaryDirectory() as temporary:
    for checkpoint in ("v4_tiny", "v41_tiny"):
        check_model(Path(temporary), checkpoint)

#!/usr/bin/env python3
"""`synth` as a user types it: --dry says the published totals, what is written is sound and runs, the same command writes the same bytes,
wrong sizes and targets end with one line, and an interrupted write leaves nothing that looks like a checkpoint."""

import array
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

BINARY = sys.argv[1]
failures = []


def tessera(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def expect(condition, *what):
    if not condition:
        failures.append(" ".join(map(str, what)))


def expect_error(code, pattern, *arguments):
    result = tessera("synth", *arguments)
    expect(result.returncode == code, arguments, "exit code", result.returncode, "instead of", code, result.stderr)
    expect(len(result.stderr.splitlines()) == 1, arguments, "wrote", repr(result.stderr))
    expect(re.search(pattern, result.stderr), arguments, "does not say", repr(pattern), "but", result.stderr)
    expect(result.stdout == "", arguments, "printed", result.stdout)


def check_dry(out):
    for like, folder in (("v4-flash", "v4_flash"), ("v4-pro", "v4_pro"), ("v4.1-flash", "v41_flash")):
        inventory = json.loads(Path(f"tests/golden/configs/{folder}/inventory.json").read_text())
        result = tessera("synth", out, "--like", like, "--dry", "--json")
        expect(result.returncode == 0 and result.stderr == "", like, result)
        seen = json.loads(result.stdout)
        expect((seen["tensors"], seen["bytes"]) == (inventory["tensors"], inventory["bytes"]), like, seen["tensors"], seen["bytes"])
        expect(sum(group["bytes"] for group in seen["groups"]) == seen["bytes"], like, "groups")
        expect(sum(file["bytes"] for file in seen["files"]) == seen["file_bytes"], like, "files")
    text = tessera("synth", out, "--like", "v4.1-flash", "--dry").stdout
    expect("509315486040 bytes" in text and "config.json" in text, text)
    expect(not out.exists(), "--dry wrote something")


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def root_mean_squares(path, prefix):
    """Of every F32 tensor of a dump whose name begins so."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    for name, entry in json.loads(content[8:start]).items():
        if name.startswith(prefix):
            begin, end = entry["data_offsets"]
            values = array.array("f", content[start + begin : start + end])
            yield name, (sum(value * value for value in values) / len(values)) ** 0.5


def check_activations(folder, model):
    """The scales of random weights keep what passes through the layers near one, and logits too."""
    ids, dump = folder / "ids.json", folder / "dump.safetensors"
    ids.write_text(json.dumps([[(7 * i * i + 3 * i) % 500 for i in range(60)]]))
    result = tessera("eval", "-m", model, "--ids-file", ids, "--dump", dump, "--dump-layers")
    expect(result.returncode == 0, model, result)
    seen = dict(root_mean_squares(dump, ("streams.", "logits.")))
    expect(len(seen) > 6 and all(0.5 < value < 5 for value in seen.values()), model, seen)


def check_checkpoint(folder, like, *sizes):
    out, again = folder / like, folder / (like + "-again")
    result = tessera("synth", out, "--like", like, *sizes, "--json")
    expect(result.returncode == 0, like, result)
    said = json.loads(result.stdout)
    expect({file["name"]: file["bytes"] for file in said["files"]} == {path.name: path.stat().st_size for path in out.iterdir()}, like)
    dry = json.loads(tessera("synth", folder / "none", "--like", like, *sizes, "--json", "--dry").stdout)
    expect(dry["files"] == said["files"] and dry["bytes"] == said["bytes"], like, "--dry says something else than what was written")
    result = tessera("check", out, "--deep")
    expect(result.returncode == 0 and "sound" in result.stdout, like, result)
    result = tessera("run", "-m", out, "--ids", "1,2,3", "-n", "4", "--ignore-eos", "--json")
    expect(result.returncode == 0 and len(json.loads(result.stdout)["output_ids"]) == 4, like, result)
    result = tessera("run", "-m", out, "any text", "-n", "4", "--ignore-eos", "--json")
    expect(result.returncode == 0 and json.loads(result.stdout)["prompt_ids"][0] == 0, like, result)
    result = tessera("tokenize", "-m", out, "hello world")
    expect(result.returncode == 0, like, result)
    expect(tessera("synth", again, "--like", like, *sizes, "--threads", "1").returncode == 0, like, "again")
    expect(digests(out) == digests(again), like, "the same command wrote other bytes")
    check_activations(folder, out)


def check_errors(folder):
    out = folder / "bad"
    expect_error(2, r"--like", out)
    expect_error(2, r"--like: .*v5", out, "--like", "v5")
    expect_error(2, r"the name is empty", "", "--like", "v4-flash")
    expect_error(2, r"OUT", "--like", "v4-flash")
    expect_error(2, r"--engram-row: unknown option; the nearest is --engram-rows", out, "--like", "v4-flash", "--engram-row", "5")
    expect_error(2, r"--layers 9: v4.1-flash takes an even number from 8 up", out, "--like", "v4.1-flash", "--layers", "9")
    expect_error(2, r"--layers 44: v4-flash has layers 1 to 43", out, "--like", "v4-flash", "--layers", "44")
    expect_error(2, r"--layers: Value 0 not in range", out, "--like", "v4-flash", "--layers", "0")
    expect_error(2, r"--experts 3: v4-flash takes 6", out, "--like", "v4-flash", "--experts", "3")
    expect_error(2, r"--hidden 1000: a multiple of 128", out, "--like", "v4-flash", "--hidden", "1000")
    expect_error(2, r"--vocab 100: the generated tokenizer takes 266 to 1048576", out, "--like", "v4-flash", "--vocab", "100")
    expect_error(2, r"v4-pro has no Engram tables", out, "--like", "v4-pro", "--engram-rows", "100")
    expect_error(2, r"--seed: -1 is not a whole number", out, "--like", "tiny-v4", "--seed", "-1")
    out.mkdir()
    (out / "file").write_text("")
    expect_error(1, r"bad: is not empty; a new or an empty directory is needed", out, "--like", "tiny-v4")
    expect_error(1, r"file: is there and is no directory", out / "file", "--like", "tiny-v4")
    expect_error(1, r"below: cannot make the directory", out / "file" / "below", "--like", "tiny-v4")
    # Two tables of 2^35 rows of 264 bytes: 18 TB.
    message = r"large: the checkpoint needs \d{14} bytes, the file system has \d+ available"
    expect_error(1, message, folder / "large", "--like", "v4.1-flash", "--engram-rows", 2**35)


def check_interrupt(folder):
    """Ctrl-C when the first bytes are there: 130, and nothing is left."""
    out = folder / "interrupted"
    command = [BINARY, "synth", out, "--like", "v4-flash", "--layers", "8", "--experts", "64"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(path.stat().st_size > 0 for path in partial_files(out)):
        os.sched_yield()
    expect(not (out / "config.json").exists() and not list(out.glob("*.safetensors")), "a part looks like a checkpoint")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    expect(process.returncode == 130 and output == "", "after Ctrl-C:", process.returncode, output, errors)
    expect(not out.exists(), "after Ctrl-C there are", out)


def partial_files(out):
    try:
        return [path for path in out.iterdir() if path.name.endswith(".partial")]
    except FileNotFoundError:
        return []


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_dry(folder / "dry")
        check_checkpoint(folder, "tiny-v4")
        sizes = "--layers 10 --experts 8 --hidden 384 --vocab 1000 --engram-rows 20000"
        check_checkpoint(folder, "tiny-v4.1", *sizes.split())
        check_errors(folder)
        check_interrupt(folder)
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`inspect` tells from a config alone what the published listings say; `check` (and the start of `run`) answers every broken checkpoint
with one line that names the file, the tensor or the value, and with exit code 1."""

import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

BINARY = sys.argv[1]
GOLDEN = Path("tests/golden")
SHARD = "model-00001-of-00002.safetensors"


def tessera(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def expect(condition, *what):
    if not condition:
        sys.exit(f"failed: {' '.join(map(str, what))}")


def check_inventories():
    for name in ("v4_flash", "v4_pro", "v41_flash"):
        folder = GOLDEN / "configs" / name
        inventory = json.loads((folder / "inventory.json").read_text())
        result = tessera("inspect", folder, "--json")
        expect(result.returncode == 0, name, result)
        seen = json.loads(result.stdout)
        expect(seen["weights_present"] is False, name)
        expect((seen["tensors"], seen["bytes"]) == (inventory["tensors"], inventory["bytes"]), name, seen["tensors"], seen["bytes"])
        expected = dict(inventory["bytes_per_token_batch_1"])
        expected["attention"], expected["total"] = expected.pop("attn"), expected.pop("per_token")
        expect(seen["bytes_per_token_batch_1"] == expected, name, seen["bytes_per_token_batch_1"])
    expect(seen["kv_bytes_per_token"] == 890, "V4.1 keeps 890 bytes a token, not", seen["kv_bytes_per_token"])
    expect(0 <= seen["full_context_bytes"] - 1048576 * 890 < 10e6, "a million tokens and their rings take", seen["full_context_bytes"])
    text = tessera("inspect", GOLDEN / "configs" / "v41_flash").stdout
    expect("509315486040 bytes" in text and "holds no weights" in text and "384006168 rows" in text, text)


def header_of(content):
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), 8 + length


def edit_header(folder, edit):
    content = (folder / SHARD).read_bytes()
    header, start = header_of(content)
    edit(header)
    text = json.dumps(header).encode()
    (folder / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + content[start:])


def set_field(tensor, field, value):
    return lambda folder: edit_header(folder, lambda header: header[tensor].update({field: value}))


def set_byte(tensor, position, value):
    def apply(folder):
        content = bytearray((folder / SHARD).read_bytes())
        header, start = header_of(content)
        content[start + header[tensor]["data_offsets"][0] + position] = value
        (folder / SHARD).write_bytes(content)

    return apply


def rewrite(name, function):
    return lambda folder: (folder / name).write_bytes(function((folder / name).read_bytes()))


# What is done to a sound checkpoint, and what the one line must name.
BROKEN = {
    "shard missing": (lambda folder: (folder / SHARD).unlink(), [SHARD, "missing"]),
    "shard cut by one byte": (rewrite(SHARD, lambda content: content[:-1]), [SHARD, "cut by 1 bytes"]),
    "header length": (rewrite(SHARD, lambda content: struct.pack("<Q", 2**63 - 1) + content[8:]), [SHARD, "9223372036854775807"]),
    "overlap": (set_field("norm.weight", "data_offsets", [0, 256]), [SHARD, "overlaps"]),
    "shape": (set_field("embed.weight", "shape", [128, 352]), [SHARD, "embed.weight", "[128, 352]", "[352, 128]"]),
    "scale shape": (set_field("layers.0.attn.wq_a.scale", "shape", [4, 2]), [SHARD, "layers.0.attn.wq_a.scale", "[4, 2]", "[2, 4]"]),
    "model type": (rewrite("config.json", lambda text: text.replace(b'"deepseek_v41"', b'"llama"')),
                   ["config.json", "llama", "deepseek_v4"]),
    "config cut": (rewrite("config.json", lambda text: text[:100]), ["config.json", "not valid JSON"]),
    "scale byte 255": (set_byte("layers.0.attn.wq_a.scale", 6, 255), [SHARD, "layers.0.attn.wq_a.scale", "255"]),
}
ONLY_CHECK = {
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), ["tokenizer.json", "missing"]),
}


def check_broken():
    result = tessera("check", "/no/such/model")
    expect(result.returncode == 1 and "/no/such/model: no such directory" in result.stdout, result)
    for name, (apply, words) in {**BROKEN, **ONLY_CHECK}.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            shutil.copytree(GOLDEN / "v41_tiny", folder, ignore=shutil.ignore_patterns("vectors"))
            apply(folder)
            result = tessera("check", folder)
            lines = result.stdout.splitlines()
            expect(result.returncode == 1 and len(result.stderr.splitlines()) == 1, name, result)
            expect(any(all(word in line for word in words) for line in lines), name, result)
            parsed = json.loads(tessera("check", folder, "--json").stdout)
            expect(parsed["sound"] is False and parsed["problems"] == lines, name, parsed)
            if name in BROKEN:
                result = tessera("run", "-m", folder, "-n", "1", "--ids", "0")
                expect(result.returncode == 1 and result.stdout == "" and len(result.stderr.splitlines()) == 1, name, result)
                expect(all(word in result.stderr for word in words), name, result)


def check_sound():
    for folder in (GOLDEN / "v41_tiny", GOLDEN / "v4_tiny", Path("models/tiny")):
        result = tessera("check", folder, "--deep")
        expect(result.returncode == 0 and result.stdout == f"{folder}: sound\n" and result.stderr == "", folder, result)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        shutil.copytree(GOLDEN / "v41_tiny", folder, ignore=shutil.ignore_patterns("vectors"))
        set_byte("layers.0.attn.wq_a.weight", 0, 0x7F)(folder)
        expect(tessera("check", folder).returncode == 0, "a NaN code is for --deep")
        expect("wq_a.weight: NaN" in tessera("check", folder, "--deep").stdout, "a NaN code is found by --deep")


check_inventories()
check_sound()
check_broken()
print("inspect and check: as published, and every broken checkpoint named")

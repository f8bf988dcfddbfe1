#!/usr/bin/env python3
"""Model directories that are wrong in the ways downloads and exports are, each made from the bundled pair:
the program must refuse them in one sentence that names file and tensor, before memory is taken.

The last line is "N passed, M failed".
usage: wrong_files.py PROGRAM [NAME...]      NAME: only those
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "laguna-nano-nvfp4"
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 13929992\n"

CASES = []


def case(*parts, early=True):
    """Registers a function that spoils a copy; `parts` must be in the sentence. Not `early`: what is wrong
    lies in the weights themselves and is seen when they are read."""
    def register(spoil):
        CASES.append((spoil.__name__, spoil, parts, early))
        return spoil
    return register


class Copy:
    """A copy of the bundled target, of links to its files."""

    def __init__(self, directory):
        self.path = directory
        directory.mkdir(parents=True)
        for file in MODEL.iterdir():
            (directory / file.name).symlink_to(file)

    def write(self, name, content):
        file = self.path / name
        file.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def remove(self, name):
        (self.path / name).unlink()

    def read(self, name):
        return (self.path / name).read_bytes()

    def change_json(self, name, change):
        document = json.loads(self.read(name))
        change(document)
        self.write(name, json.dumps(document))

    def shard_of(self, tensor):
        return json.loads(self.read(INDEX))["weight_map"][tensor]

    def header(self, shard):
        content = self.read(shard)
        (length,) = struct.unpack("<Q", content[:8])
        return json.loads(content[8:8 + length]), content[8 + length:]

    def write_shard(self, shard, header, data):
        text = header if isinstance(header, str) else json.dumps(header)
        self.write(shard, struct.pack("<Q", len(text)) + text.encode() + data)

    def change_header(self, shard, change):
        header, data = self.header(shard)
        change(header)
        self.write_shard(shard, header, data)

    def change_tensor(self, tensor, change):
        """`change` gets the tensor's bytes as a bytearray."""
        shard = self.shard_of(tensor)
        header, data = self.header(shard)
        begin, end = header[tensor]["data_offsets"]
        part = bytearray(data[begin:end])
        change(part)
        self.write_shard(shard, header, data[:begin] + bytes(part) + data[end:])


def expert(copy, suffix):
    return sorted(name for name in json.loads(copy.read(INDEX))["weight_map"] if name.endswith(suffix))[0]


@case(SECOND, "is missing", INDEX)
def missing_shard(copy):
    copy.remove(SECOND)


@case(SECOND, "is missing", "the download is unfinished", SECOND + ".incomplete")
def incomplete_beside(copy):
    copy.remove(SECOND)
    copy.write(SECOND + ".incomplete", "x")


@case(SECOND, "is missing", "the download is unfinished", SECOND + ".part")
def part_beside(copy):
    copy.remove(SECOND)
    copy.write(SECOND + ".part", "x")


@case(SECOND, "is missing", "the download is unfinished", "x.incomplete", ".cache/huggingface/download")
def incomplete_of_the_client(copy):
    copy.remove(SECOND)
    copy.write(".cache/huggingface/download/x.incomplete", "x")


@case(SECOND, "is missing", "x.incomplete", "blobs", "HF_HUB_DISABLE_XET=1 hf download poolside/Laguna-nano")
def incomplete_among_blobs(copy):
    commit = "0123456789" * 4
    folder = copy.path / "models--poolside--Laguna-nano"
    snapshot = Copy(folder / "snapshots" / commit)
    snapshot.remove(SECOND)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "x.incomplete").write_text("x")
    return snapshot.path


@case("special_tokens_map.json.part", "unfinished")
def part_of_another_file(copy):
    copy.write("special_tokens_map.json.part", "x")


@case(FIRST, "truncated")
def truncated_by_a_byte(copy):
    copy.write(FIRST, copy.read(FIRST)[:-1])


@case(FIRST, "truncated")
def truncated_in_its_header(copy):
    copy.write(FIRST, copy.read(FIRST)[:1000])


@case(FIRST, "is empty")
def empty_shard(copy):
    copy.write(FIRST, "")


@case(FIRST, "its header alone takes")
def header_longer_than_the_file(copy):
    content = copy.read(FIRST)
    copy.write(FIRST, struct.pack("<Q", len(content)) + content[8:])


@case(FIRST, "it would have a header of 18446744073709551615 bytes")
def header_of_all_bits(copy):
    copy.write(FIRST, b"\xff" * 8 + copy.read(FIRST)[8:])


@case(FIRST, "not valid JSON")
def header_that_is_not_json(copy):
    _, data = copy.header(FIRST)
    copy.write_shard(FIRST, "{not JSON}", data)


def shift(copy, tensor, first, last):
    def change(header):
        offsets = header[tensor]["data_offsets"]
        header[tensor]["data_offsets"] = [offsets[0] + first, offsets[1] + last]
    copy.change_header(copy.shard_of(tensor), change)


@case(NORM, "overlaps tensor")
def overlapping_offsets(copy):
    shift(copy, NORM, -2, -2)


@case(FIRST, "tensor", "ends at byte")
def offsets_beyond_the_file(copy):
    header, _ = copy.header(FIRST)
    last = max((name for name in header if name != "__metadata__"),
               key=lambda name: header[name]["data_offsets"][1])
    shape = header[last]["shape"]

    def change(changed):
        begin, end = changed[last]["data_offsets"]
        changed[last]["shape"] = [2 * shape[0], *shape[1:]] if shape else [2]
        changed[last]["data_offsets"] = [begin, 2 * end - begin]
    copy.change_header(FIRST, change)


@case(NORM, "but BF16 of shape")
def offsets_that_do_not_fit_the_shape(copy):
    shift(copy, NORM, 0, -2)


@case(NORM, "is there twice")
def a_name_twice_in_a_header(copy):
    shard = copy.shard_of(NORM)
    header, data = copy.header(shard)
    text = json.dumps(header)
    again = json.dumps({NORM: header[NORM]})
    copy.write_shard(shard, text[:-1] + ", " + again[1:], data)


@case(NORM, "is in both", FIRST, SECOND)
def a_name_in_two_shards(copy):
    shard = copy.shard_of(NORM)
    other = SECOND if shard == FIRST else FIRST
    header, data = copy.header(other)
    mine, _ = copy.header(shard)
    size = mine[NORM]["data_offsets"][1] - mine[NORM]["data_offsets"][0]
    header[NORM] = {**mine[NORM], "data_offsets": [len(data), len(data) + size]}
    copy.write_shard(other, header, data + bytes(size))


@case(NORM, "is there twice", INDEX)
def a_name_twice_in_the_index(copy):
    copy.write(INDEX, copy.read(INDEX).decode().replace(
        '"weight_map": {', f'"weight_map": {{"{NORM}": "{FIRST}",', 1))


@case(NORM, "F16", "BF16")
def another_dtype(copy):
    copy.change_header(copy.shard_of(NORM), lambda header: header[NORM].update(dtype="F16"))


@case("model.layers.1.self_attn.q_proj.weight", "the model needs")
def another_shape(copy):
    name = "model.layers.1.self_attn.q_proj.weight"
    copy.change_header(copy.shard_of(name), lambda header: header[name]["shape"].reverse())


def put_nan(part):
    part[:] = b"\x00\x00\xc0\x7f" if len(part) == 4 else b"\xc0\x7f"


@case("k_scale", "is nan")
def nan_cache_scale(copy):
    copy.change_tensor(expert(copy, ".k_scale"), put_nan)


@case("weight_global_scale", "is nan")
def nan_global_scale(copy):
    copy.change_tensor(expert(copy, ".weight_global_scale"), put_nan)


@case("weight_global_scale", "is -")
def negative_global_scale(copy):
    copy.change_tensor(expert(copy, ".weight_global_scale"), lambda part: part.__setitem__(3, part[3] | 0x80))


@case(".weight_scale", "NaN block scale", early=False)
def nan_block_scale(copy):
    copy.change_tensor(expert(copy, "down_proj.weight_scale"), lambda part: part.__setitem__(5, 0x7F))


def drop(copy, tensor):
    """Takes a tensor out of header, data and index."""
    shard = copy.shard_of(tensor)
    header, data = copy.header(shard)
    begin, end = header.pop(tensor)["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    copy.write_shard(shard, header, data[:begin] + data[end:])
    copy.change_json(INDEX, lambda index: index["weight_map"].pop(tensor))


@case(NORM, "is missing")
def missing_tensor(copy):
    drop(copy, NORM)


@case(NORM, "lacks tensor")
def missing_tensor_that_the_index_names(copy):
    index = copy.read(INDEX)
    drop(copy, NORM)
    copy.write(INDEX, index)


@case("model.layers.9.extra.weight", "is not part of this model")
def alien_tensor(copy):
    header, data = copy.header(FIRST)
    header["model.layers.9.extra.weight"] = {"dtype": "U8", "shape": [4],
                                             "data_offsets": [len(data), len(data) + 4]}
    copy.write_shard(FIRST, header, data + bytes(4))
    copy.change_json(INDEX, lambda index: index["weight_map"].update({"model.layers.9.extra.weight": FIRST}))


@case(FIRST, "Git LFS pointer")
def pointer_for_a_shard(copy):
    copy.write(FIRST, POINTER)


@case("config.json", "Git LFS pointer")
def pointer_for_the_config(copy):
    copy.write("config.json", POINTER)


@case("has no weights", "model.gguf")
def weights_of_another_kind(copy):
    for name in (FIRST, SECOND, INDEX):
        copy.remove(name)
    copy.write("model.gguf", "GGUF")


@case("config.json", "layer_types", "num_hidden_layers")
def config_with_a_layer_type_too_few(copy):
    copy.change_json("config.json", lambda config: config["layer_types"].pop())


@case("config.json", "mlp_layer_types", "contradicts")
def config_that_contradicts_itself(copy):
    def change(config):
        config["mlp_layer_types"] = ["dense"] + ["sparse"] * (config["num_hidden_layers"] - 1)
        config["mlp_only_layers"] = [1]
    copy.change_json("config.json", change)


@case("config.json", "num_experts_per_tok")
def config_with_more_choices_than_experts(copy):
    copy.change_json("config.json", lambda config: config.update(num_experts_per_tok=config["num_experts"] + 1))


@case("model.embed_tokens.weight", "the model needs BF16 or F32 [8192")
def config_of_another_vocabulary(copy):
    copy.change_json("config.json", lambda config: config.update(vocab_size=8192))


@case("g_proj.weight", "the model needs")
def config_of_another_gate(copy):
    copy.change_json("config.json", lambda config: config.update(gating="per-element"))


def spoil_apart(spoil, directory):
    """Makes a spoilt copy in a process of its own and returns the model's path: what a child takes of memory
    is counted from what its parent has, which must stay small."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            copy = Copy(directory)
            os.write(writing, str(spoil(copy) or copy.path).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        path = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"wrong_files.py: {spoil.__name__} could not be made")
    return path


def run(program, model):
    """Exit code, what it said on stderr, and its peak of resident memory in MB."""
    command = [program, "generate", str(model), "--raw", "--prompt", "a", "--max-tokens", "1", "--max-model-len",
               "4096", "--temperature", "0"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return process.returncode, errors.read().decode(), usage.ru_maxrss / 1024


def fault_of(result, parts, limit):
    code, text, peak = result
    if code == 0:
        return "it was not refused"
    if code < 0:
        return f"the program died of signal {-code}"
    if text.count("\n") != 1 or not text.startswith("lagoon: "):
        return f"not one sentence: {text!r}"
    absent = [part for part in parts if part not in text]
    if absent:
        return f"{absent} is not in: {text!r}"
    return f"{peak:.0f} MB of memory were taken, above {limit:.0f}" if peak > limit else ""


def main():
    program = os.path.abspath(sys.argv[1])
    wanted = sys.argv[2:]
    failed = 0
    chosen = [entry for entry in CASES if not wanted or entry[0] in wanted]
    with tempfile.TemporaryDirectory() as temporary:
        good = run(program, Copy(Path(temporary) / "good").path)
        if good[0] != 0:
            sys.exit(f"wrong_files.py: the bundled model itself does not run: {good[1]}")
        # Weights, caches and staging are more than half of what a run takes.
        limit = good[2] / 2
        for name, spoil, parts, early in chosen:
            directory = Path(temporary) / name
            result = run(program, spoil_apart(spoil, directory))
            fault = fault_of(result, parts, limit if early else good[2])
            failed += fault != ""
            print(f"{'not ok' if fault else 'ok'} {name} ({result[2]:.0f} MB): {fault or result[1].strip()}")
            shutil.rmtree(directory)
    print(f"a run of the model takes {good[2]:.0f} MB")
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The stages of scripts/bench_gpu.sh: runs `lagoon bench` on the full-size shape and merges the figures.

usage: bench_gpu.py LAGOON RESULT.json COMMIT

Beside each figure stands what the bytes alone would give: bytes counted here from the published shape
(independently of src/plan), with the experts that the engine counted, over the rate of a device copy of the
same run; and what they would give on a Spark, which is computed and not measured. Environment: STAGES;
LAYERS (48), BACKEND (cuda), CONFIG and DRAFT_CONFIG (directories), WORK (for a checkpoint of 20 GB) and
LENGTH (2048, tokens of a prompt) are for trying it elsewhere.
"""
import ctypes
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "tests/fixtures/configs"
LIMITS = {"decode": 60, "verify": 80, "sweep": 140, "streams": 70, "contexts": 90, "load": 110}  # seconds
# Keys of the result that a stage gives; where it fails, those of an earlier run go.
KEYS = {"decode": ("decode", "decode_ratio"), "verify": ("verify", "verify7_over_bytes", "draft_step"),
        "sweep": ("tok_s_by_k",), "streams": ("streams",), "contexts": ("contexts",), "load": ("load", "load_gb_s")}
SPARK = (232, 245)  # GB/s that a Spark's memory was seen to read
RATES = [0.88, 0.69, 0.64, 0.59, 0.51, 0.39]  # acceptance by position on code, as published
while len(RATES) < 15:
    RATES.append(round(RATES[-1] * 0.8, 6))
READERS = 32  # of the disk; fewer do not reach its rate
SWEEP = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15)
CONTEXTS = (2048, 32768, 131072, 262144)
# What a lagoon that fails or says nonsense comes to: it fails its stage and no other.
FAULTS = (RuntimeError, subprocess.SubprocessError, OSError, LookupError, TypeError, ValueError, AttributeError,
          ArithmeticError)


class Shape:
    """Bytes of a step, from config.json alone."""

    def __init__(self, config, draft):
        hidden, head, kv = config["hidden_size"], config["head_dim"], config["num_key_value_heads"]
        full = [kind == "full_attention" for kind in config["layer_types"]]
        heads = config["num_attention_heads_per_layer"]
        dense = [kind == "dense" for kind in config["mlp_layer_types"]]
        sparse = dense.count(False)
        inner = config["moe_intermediate_size"]

        def attention(n):
            return 2 * hidden * n * head + 2 * hidden * kv * head + hidden * n

        weights = sum(attention(n) for n in heads)
        weights += dense.count(True) * 3 * hidden * config["intermediate_size"]
        weights += sparse * 3 * hidden * config["shared_expert_intermediate_size"]
        weights += sparse * hidden * config["num_experts"]
        self.head = 2 * config["vocab_size"] * hidden
        self.fixed = 2 * weights + self.head
        self.expert = sparse * 3 * hidden * inner * (0.5 + 1 / 16)  # of each layer one, NVFP4
        self.full, self.sliding = full.count(True), full.count(False)
        self.window, self.position = config["sliding_window"], 2 * kv * head
        n = draft["num_attention_heads"]
        self.draft = 2 * draft["num_hidden_layers"] * (attention(n) + 3 * hidden * draft["intermediate_size"])
        self.fusion = 2 * len(draft["dflash_config"]["target_layer_ids"]) * hidden * hidden

    def step(self, experts, context, streams, drafted):
        keys = self.position * (self.full * context + self.sliding * min(context, self.window))
        return (self.fixed + experts * self.expert + streams * keys +
                (self.draft + self.fusion + self.head if drafted else 0))


class Run:
    def __init__(self, lagoon):
        self.lagoon = str(Path(lagoon).resolve())
        if not os.access(self.lagoon, os.X_OK):
            raise RuntimeError(f"{self.lagoon} is no program")
        self.backend = os.environ.get("BACKEND", "cuda")
        self.layers = number("LAYERS", 48)
        self.length = number("LENGTH", 2048)
        self.log, self.failed = [], []
        self.deadline = 0
        self.work = Path(tempfile.mkdtemp(dir=os.environ.get("WORK")))
        try:
            self.shape = self.make_configs()
        except FAULTS:
            shutil.rmtree(self.work, ignore_errors=True)
            raise

    def make_configs(self):
        target = Path(os.environ.get("CONFIG", CONFIGS / "laguna-s-2.1-nvfp4"))
        draft = Path(os.environ.get("DRAFT_CONFIG", CONFIGS / "laguna-s-2.1-dflash-nvfp4"))
        self.target_config = str(target / "config.json")
        tokenizer = ["--tokenizer", str(ROOT / "models/laguna-nano-nvfp4")]
        for name, source, more in (("target", target, tokenizer), ("draft", draft, [])):
            self.check([self.lagoon, "synth", "--config", str(source / "config.json"), "--layers", str(self.layers),
                        "--no-weights", "--out", str(self.work / name), *more], 30)
        return Shape(json.loads((self.work / "target/config.json").read_text()),
                     json.loads((self.work / "draft/config.json").read_text()))

    def check(self, command, limit):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[:3])} ...: {(done.stdout + done.stderr)[-2000:]}")
        return done

    def bench(self, *options):
        """One `lagoon bench` of random weights; its JSON. Ends with the stage's time."""
        left = self.deadline - time.monotonic()
        if left < 5:
            raise RuntimeError("the stage's time is over")
        path = self.work / "bench.json"
        path.unlink(missing_ok=True)  # or figures of the run before would pass for this one's
        command = [self.lagoon, "bench", str(self.work / "target"), "--load-format", "dummy", "--backend",
                   self.backend, "--kv-cache-dtype", "fp8", "--json", str(path), *map(str, options)]
        done = self.check(command, left)
        print(done.stdout)
        figures = json.loads(path.read_text())
        if not figures["rows"]:
            raise RuntimeError("lagoon bench measured nothing")
        return figures

    def draft(self):
        return ["--speculative-config",
                json.dumps({"method": "dflash", "model": str(self.work / "draft"), "num_speculative_tokens": 6})]

    def cell(self, data, row):
        """A row's figures, and what its bytes alone would give."""
        experts, tokens = row["experts_per_layer"] or 0, row["tokens_emitted_per_step"] or 1
        if not data["memory_bytes_per_second"]:
            raise RuntimeError("the device has no room for a copy, so that its rate is not known: use fewer LAYERS")
        context = row["prompt_tokens"]["median"] + row["completion_tokens"]["median"] / 2
        drafted = row["k"] > 0 and bool(data["draft_steps"])
        size = self.shape.step(experts, context, row["streams"], drafted)
        seconds, copy = row["step_seconds"]["median"], data["memory_bytes_per_second"]
        return {"tok_s": round(row["total_tokens_per_second"]["median"], 1), "step_ms": round(1e3 * seconds, 4),
                "steps": row["step_seconds"]["count"], "tokens_per_step": round(tokens, 3),
                "rows_per_step": round(row["rows_per_step"] or 1, 2), "experts_per_layer": round(experts, 2),
                "gb": round(size / 1e9, 4), "counted_gb": round((row["step_bytes"] or 0) / 1e9, 4),
                "of_copy": round(size / seconds / copy, 4), "copy_gb_s": round(copy / 1e9, 1),
                "host_share": round(row["host_share"] or 0, 4),
                "roofline_tok_s": round(row["streams"] * tokens * copy / size, 1),
                "computed_spark_tok_s": {str(rate): round(row["streams"] * tokens * rate * 1e9 / size, 2)
                                         for rate in SPARK}}

    # ---- Stages. Each returns keys of the result.

    def decode(self):
        data = self.bench("--input-len", self.length, "--output-len", self.length // 4, "--max-model-len",
                          2 * self.length, "--repeats", 2)
        row, load = data["rows"][0], data["loads"][0]
        cell = self.cell(data, row)
        cell["prompt_tok_s"] = round(row["prefill_tokens_per_second"]["median"], 1)
        cell["weights_gb"], cell["weights_made_s"] = round(load["bytes"] / 1e9, 2), round(load["seconds"], 2)
        return {"copy_gb_s": cell["copy_gb_s"], "decode_ratio": cell["of_copy"], "decode": cell}

    def verify(self):
        data = self.bench("--input-len", self.length, "--output-len", 256, "--repeats", 1, "--random-context",
                          "--random-proposals", "--k", "0,3,6,7,15")
        cells = {row["k"] + 1: self.cell(data, row) for row in data["rows"]}
        one = cells[1]
        for cell in cells.values():
            cell["over_bytes"] = round(cell["step_ms"] / one["step_ms"] / (cell["gb"] / one["gb"]), 4)
        figures = {"verify": {str(rows): cell for rows, cell in cells.items()},
                   "verify7_over_bytes": cells[7]["over_bytes"]}
        drafts = self.bench("--input-len", self.length, "--output-len", 32, "--repeats", 1, "--random-context",
                            "--k", "6,15", *self.draft(), "--synthetic-acceptance", ",".join(map(str, RATES)))
        figures["draft_step"] = {
            str(step["k"]): {"ms": round(1e3 * step["seconds"], 4), "gb": round(step["bytes"] / 1e9, 4),
                             "of_copy": round(step["share_of_memory_rate"] or 0, 4),
                             "over_bytes": round(1e3 * step["seconds"] / one["step_ms"] /
                                                 (step["bytes"] / 1e9 / one["gb"]), 4)}
            for step in drafts["draft_steps"]}
        return figures

    def sweep(self):
        figures = {}
        for name, options in (("overlap", ["--dummy-routing-overlap", 0.2]), ("uniform", [])):
            data = self.bench("--input-len", self.length, "--output-len", 384, "--repeats", 1, "--random-context",
                              "--k", ",".join(map(str, SWEEP)), *self.draft(), "--synthetic-acceptance",
                              ",".join(map(str, RATES)), *options)
            cells = {str(row["k"]): self.cell(data, row) for row in data["rows"]}
            best = max(cells, key=lambda k: cells[k]["tok_s"])
            figures[name] = {"tok_s": {k: cell["tok_s"] for k, cell in cells.items()}, "best_k": int(best),
                             "best_tok_s": cells[best]["tok_s"], "cells": cells}
        return {"tok_s_by_k": figures}

    def streams(self):
        data = self.bench("--input-len", self.length, "--output-len", 192, "--repeats", 1, "--random-context",
                          "--streams", "4,16", "--k", "0,6", *self.draft(), "--synthetic-acceptance",
                          ",".join(map(str, RATES)))
        figures = {}
        for row in data["rows"]:
            figures.setdefault(str(row["streams"]), {})[str(row["k"])] = self.cell(data, row)
        return {"streams": figures}

    def contexts(self):
        figures = {}
        longest = json.loads(Path(self.target_config).read_text())["max_position_embeddings"]
        for context in CONTEXTS:
            length = min(context, longest - 288)
            if str(length) in figures or context > 2 * longest:
                continue
            data = self.bench("--input-len", length, "--output-len", 257, "--repeats", 1, "--random-context")
            figures[str(context)] = self.cell(data, data["rows"][0])
        return {"contexts": figures}

    def load(self):
        layers = min(13, self.layers)
        directory = self.work / "checkpoint"
        begin = time.monotonic()
        self.check([self.lagoon, "synth", "--config", self.target_config, "--layers", str(layers), "--tokenizer",
                    str(ROOT / "models/laguna-nano-nvfp4"), "--out", str(directory)], LIMITS["load"])
        shards = sorted(directory.glob("*.safetensors"))
        size = sum(shard.stat().st_size for shard in shards)
        figures = {"layers": layers, "gb": round(size / 1e9, 2), "written_s": round(time.monotonic() - begin, 2)}
        leave_cache(shards)
        figures["disk_gb_s"] = round(size / read_disk(shards) / 1e9, 3)
        leave_cache(shards)
        figures["page_cache_before_mb"] = round(cached_bytes(shards) / 1e6, 1)
        path = self.work / "load.json"
        self.check([self.lagoon, "bench", str(directory), "--backend", self.backend, "--input-len", "16",
                    "--output-len", "2", "--warmup", "0", "--repeats", "1", "--json", str(path)], LIMITS["load"])
        loaded = json.loads(path.read_text())["loads"][0]
        figures["read_s"], figures["gb_s"] = round(loaded["seconds"], 2), round(loaded["bytes_per_second"] / 1e9, 3)
        figures["page_cache_after_mb"] = round(cached_bytes(shards) / 1e6, 1)
        leave_cache(shards)
        figures.update(self.first_token(directory))
        figures["of_disk"] = round(figures["gb_s"] / figures["disk_gb_s"], 3)
        shutil.rmtree(directory)
        return {"load_gb_s": figures["gb_s"], "load": figures}

    def first_token(self, directory):
        begin = time.monotonic()
        with subprocess.Popen([self.lagoon, "generate", str(directory), "--prompt", "def f(", "--max-tokens", "8",
                               "--backend", self.backend, "--max-model-len", "4096"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            errors = []
            reader = threading.Thread(target=lambda: errors.append(process.stderr.read().decode()))
            reader.start()
            limit = threading.Timer(max(1, self.deadline - begin), process.kill)
            limit.start()
            first = process.stdout.read(1)
            seconds = time.monotonic() - begin
            rest = process.stdout.read().decode(errors="replace")
            reader.join()
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or not first:
            raise RuntimeError(f"lagoon generate: {(''.join(errors) + rest)[-2000:]}")
        return {"first_token_s": round(seconds, 2),
                "peak_host_gb": round(usage.ru_maxrss * 1024 / 1e9, 3)}

    def stage(self, name):
        begin = time.monotonic()
        self.deadline = begin + LIMITS[name]
        try:
            figures, status = getattr(self, name)(), "passed"
        except FAULTS as error:
            print(f"{name}: {type(error).__name__}: {error}")
            figures, status = {}, "FAILED"
            self.failed.append(name)
        self.log.append(f"{name:<12} {time.monotonic() - begin:4.0f} s  {status}")
        return figures


def number(name, default):
    """An environment variable that is a number of at least 1."""
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise RuntimeError(f"{name} is '{text}', which is no number of at least 1")
    return int(text)


def read_result(path):
    """What earlier runs and other scripts have measured."""
    try:
        figures = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError):
        figures = None
    if not isinstance(figures, dict):
        raise RuntimeError(f"{path} is no JSON object that figures can be added to: move it away")
    return figures


def leave_cache(shards):
    os.sync()
    for shard in shards:
        with open(shard, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(shards):
    """Bytes of the files that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    for shard in shards:
        size = shard.stat().st_size
        with open(shard, "rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as memory:
            pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
            resident = (ctypes.c_ubyte * pages)()
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident) == 0:
                total += sum(byte & 1 for byte in bytes(resident)) * mmap.PAGESIZE
    return total


def read_disk(shards):
    """Seconds of reading all of them past the page cache, with 32 readers of 4 MiB."""
    begin = time.monotonic()
    for shard in shards:
        blocks = shard.stat().st_size // (4 << 20) + 1
        part = blocks // READERS + 1
        readers = [subprocess.Popen(["dd", f"if={shard}", "of=/dev/null", "iflag=direct", "bs=4M",
                                     f"skip={i * part}", f"count={part}", "status=none"]) for i in range(READERS)]
        if any([reader.wait() for reader in readers]):
            raise RuntimeError(f"{shard} cannot be read past the page cache: set WORK to a folder on a disk")
    return time.monotonic() - begin


def table(figures):
    """Lines of (what, measured, bytes alone, Spark computed)."""
    cells = []
    if "decode" in figures:
        cells.append(("decode, k 0", figures["decode"]))
    cells += [(f"verify {rows} rows", cell) for rows, cell in figures.get("verify", {}).items()]
    for name, part in figures.get("tok_s_by_k", {}).items():
        cells += [(f"k {k}, {name}", cell) for k, cell in part.get("cells", {}).items()]
    for streams, part in figures.get("streams", {}).items():
        cells += [(f"{streams} streams, k {k}", cell) for k, cell in part.items()]
    cells += [(f"context {context}", cell) for context, cell in figures.get("contexts", {}).items()]
    head = f"{'':<20} {'tok/s':>8} {'roofline':>8} {'of copy':>7} {'ms':>8} {'GB':>7} {'experts':>7}"
    yield head + "".join(f"  Spark at {rate}, computed" for rate in SPARK)
    for what, cell in cells:
        spark = "".join(f"{tok_s:24.1f}" for tok_s in cell["computed_spark_tok_s"].values())
        over = f"  over bytes {cell['over_bytes']:.2f}" if "over_bytes" in cell else ""
        yield (f"{what:<20} {cell['tok_s']:8.1f} {cell['roofline_tok_s']:8.1f} {cell['of_copy']:7.3f} "
               f"{cell['step_ms']:8.3f} {cell['gb']:7.2f} {cell['experts_per_layer']:7.1f}{spark}{over}")
    for k, step in figures.get("draft_step", {}).items():
        yield f"draft of {k}: {step['ms']:.3f} ms, {step['gb']:.2f} GB, over bytes {step['over_bytes']:.2f}"
    if load := figures.get("load"):
        yield (f"load: {load['gb']} GB at {load['gb_s']} GB/s, the disk {load['disk_gb_s']}; peak of the host "
               f"{load['peak_host_gb']} GB, page cache {load['page_cache_before_mb']} then "
               f"{load['page_cache_after_mb']} MB; first token after {load['first_token_s']} s")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    lagoon, result, commit = sys.argv[1:]
    stages = os.environ.get("STAGES", " ".join(LIMITS)).split()
    unknown = [name for name in stages if name not in LIMITS]
    if unknown:
        sys.exit(f"bench_gpu: STAGES has {unknown[0]}, which is none of {' '.join(LIMITS)}")
    if not stages:
        sys.exit(f"bench_gpu: STAGES names none of {' '.join(LIMITS)}")
    path = Path(result)
    try:
        read_result(path)
        run = Run(lagoon)
    except FAULTS as error:
        sys.exit(f"bench_gpu: {str(error).strip()}")
    measured = {}
    try:
        for name in stages:
            measured.update(run.stage(name))
            # After each stage, so that what was measured is there whatever comes.
            figures = read_result(path)
            for key in KEYS[name]:
                figures.pop(key, None)
            figures.update(measured)
            figures.setdefault("meta", {}).setdefault("bench_gpu", {})[name] = {
                "commit": commit, "layers": run.layers, "backend": run.backend, "result": run.log[-1],
                "command": f'STAGES="{" ".join(stages)}" scripts/bench_gpu.sh PROGRAMS RESULT.json'}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(figures, indent=1) + "\n")
    finally:
        shutil.rmtree(run.work, ignore_errors=True)
    print("\n".join(table(measured)))
    print("\n".join(run.log))
    print(f"{len(stages) - len(run.failed)} passed, {len(run.failed)} failed")
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()

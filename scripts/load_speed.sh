#!/usr/bin/env bash
# Loads a checkpoint of 6 GB cold and compares its rate with the disk's own, measured in the same run:
# GB/s, peak memory, the page cache before and after. Writes the checkpoint (four layers of S-2.1, random
# weights) to DIRECTORY, which needs 7 GB and is deleted afterwards unless it was there before.
# usage: load_speed.sh [DIRECTORY]      of build/test's lagoon and read_bench
set -euo pipefail
cd "$(dirname "$0")/.."

directory=${1:-build/load-speed}
for program in build/test/bin/lagoon build/test/bin/read_bench; do
  [[ -x $program ]] || {
    echo "load_speed.sh: $program is missing: run scripts/build.sh test ${program##*/}" >&2
    exit 1
  }
done
if [[ ! -e $directory ]]; then
  trap 'rm -rf "$directory"' EXIT
  build/test/bin/lagoon synth --config tests/fixtures/configs/laguna-s-2.1-nvfp4/config.json --layers 4 \
    --tokenizer laguna-nano-nvfp4 --out "$directory"
fi
shards=("$directory"/*.safetensors)

leave_cache() {
  sync
  for shard in "${shards[@]}"; do dd if="$shard" iflag=nocache count=0 status=none; done
}
cached() { fincore --bytes --noheadings --output RES "${shards[@]}" | awk '{ n += $1 } END { print n + 0 }'; }
now() { date +%s.%N; }

# The disk alone: four readers of 4 MiB past the page cache.
read_disk() {
  local shard bytes part
  for shard in "${shards[@]}"; do
    bytes=$(stat -Lc %s "$shard")
    part=$((bytes / 4 / 4194304 + 1))
    for i in 0 1 2 3; do
      dd if="$shard" of=/dev/null iflag=direct bs=4M skip=$((i * part)) count="$part" status=none &
    done
    wait
  done
}
total=$(stat -Lc %s "${shards[@]}" | awk '{ n += $1 } END { print n }')
leave_cache
start=$(now)
read_disk
awk -v bytes="$total" -v start="$start" -v end="$(now)" 'BEGIN {
  printf "disk: %.2f GB in %.2f s: %.2f GB/s\n", bytes / 1e9, end - start, bytes / 1e9 / (end - start) }'

build/test/bin/read_bench "$directory"

leave_cache
before=$(cached)
peak=$(python3 - "$directory" <<'END'
import os, signal, subprocess, sys
server = subprocess.Popen(["build/test/bin/lagoon", "serve", sys.argv[1], "--port", "0", "--max-num-seqs", "1",
                           "--max-model-len", "1024"], stdout=subprocess.PIPE, text=True)
for line in server.stdout:
    if line.startswith(("read ", "Model loading took", "reading the ")):
        print("lagoon:", line, end="", file=sys.stderr)
    if "startup complete" in line:
        server.send_signal(signal.SIGTERM)
_, status, usage = os.wait4(server.pid, 0)
if status != 0:
    sys.exit("load_speed.sh: the server failed")
print(usage.ru_maxrss * 1024)
END
)
after=$(cached)
awk -v peak="$peak" -v total="$total" -v before="$before" -v after="$after" 'BEGIN {
  printf "peak memory %.2f GB of a checkpoint of %.2f GB; in the page cache %.1f MB before, %.1f MB after\n",
    peak / 1e9, total / 1e9, before / 1e6, after / 1e6
  exit after > before + 65536 }'

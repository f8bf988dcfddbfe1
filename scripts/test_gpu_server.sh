#!/usr/bin/env bash
# Serves the bundled pair on a GPU with its draft, without it and without graphs, and on the CPU, and asks
# the same chats at temperature 0: on the GPU the texts are equal, and the CPU, which rounds differently,
# knows the same capital. Then measures the GPU with and without the draft. The program may have been
# built anywhere. Ends with "N passed, M failed".
# usage: test_gpu_server.sh PROGRAM [BENCH.json]      PROGRAM: lagoon with its CUDA backend
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:?usage: test_gpu_server.sh PROGRAM [BENCH.json]}
bench=${2:-}
target=models/laguna-nano-nvfp4
draft='{"method":"dflash","model":"models/laguna-nano-dflash-nvfp4","num_speculative_tokens":6}'
work=$(mktemp -d)
servers=()
trap '((${#servers[@]} == 0)) || kill "${servers[@]}"; wait; rm -rf "$work"' EXIT

# start NAME ARGUMENT...: serves on a free port and leaves its address in the file of that name.
start() {
  local name=$1 waited=0
  shift
  "$program" serve "$target" --host 127.0.0.1 --port 0 --max-num-seqs 4 "$@" >"$work/$name.log" 2>&1 &
  servers+=($!)
  until sed -n 's/^Serving .* on \(http:.*\)$/\1/p' "$work/$name.log" >"$work/$name" && [[ -s $work/$name ]]; do
    if ! kill -0 "${servers[-1]}" 2>/dev/null || ((waited++ >= 300)); then
      cat "$work/$name.log"
      echo "test_gpu_server.sh: the server '$name' did not start (see above)"
      echo "0 passed, 1 failed"
      exit 1
    fi
    sleep 0.2
  done
}
start draft --backend cuda --speculative-config "$draft"
start plain --backend cuda
start eager --backend cuda --speculative-config "$draft" --enforce-eager
start cpu --backend cpu

status=0
python3 - "$(<"$work/draft")" "$(<"$work/plain")" "$(<"$work/eager")" "$(<"$work/cpu")" <<'PYTHON' |
import json, sys, urllib.request

CHATS = ["What is the capital of France?",
         "Write a function in Python that adds two numbers.",
         "What does a linked list consist of?",
         "Sort the numbers 3, 1 and 2."]

def ask(address, text):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 96,
            "ignore_eos": True}
    request = urllib.request.Request(address + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    message = json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]
    return (message.get("reasoning") or "") + (message.get("content") or "")

*gpu, cpu = sys.argv[1:]
failed = 0
for chat in CHATS:
    answers = [ask(address, chat) for address in gpu]
    same = len(set(answers)) == 1 and answers[0] != ""
    failed += not same
    print(f"{'same text' if same else 'FAILED'}: {chat} -> {answers if not same else answers[0]!r}")
capitals = [ask(address, CHATS[0]) for address in (gpu[0], cpu)]
knows = all("Paris" in answer for answer in capitals)
failed += not knows
print(f"{'Paris' if knows else 'FAILED'}: {[answer[:40] for answer in capitals]}")
print(f"{len(CHATS) + 1 - failed} passed, {failed} failed")
sys.exit(failed > 0)
PYTHON
  tee "$work/result" || status=$?

kill "${servers[@]}"
wait "${servers[@]}" || true
servers=()
"$program" bench "$target" --backend cuda --speculative-config "$draft" --k 0,6 --streams 1 \
  --input-len 256 --output-len 256 --repeats 3 --json "${bench:-$work/bench.json}"
tail -n 1 "$work/result"
exit "$status"

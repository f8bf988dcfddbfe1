#!/usr/bin/env bash
# Prometheus' own check of metrics, `promtool check metrics`: format, names, help texts.
# vLLM's names have a colon, which promtool keeps for recording rules; it is read as '_' here. And its
# histogram iteration_tokens_total ends like a counter.
# usage: check_metrics.sh FILE      a file with the text of /metrics
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:?usage: check_metrics.sh FILE}

# The package would start a server, so its program alone is taken out of it.
promtool=$(command -v promtool || true)
if [[ -z $promtool ]]; then
  promtool=build/promtool/usr/bin/promtool
  if [[ ! -x $promtool ]]; then
    mkdir -p build/promtool
    (cd build/promtool && apt-get -o Acquire::Retries=3 download prometheus >/dev/null 2>&1 &&
      dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool &&
      rm -f prometheus_*.deb) || {
      echo "check_metrics: promtool is missing and the package prometheus could not be had" >&2
      exit 1
    }
  fi
fi
grep -q '^vllm:' "$file" || {
  echo "check_metrics: $file has no metrics of the engine" >&2
  exit 1
}
sed -E 's/^(# (HELP|TYPE) )?(vllm|lagoon):/\1\3_/; s/(vllm_iteration_tokens)_total/\1/' "$file" | "$promtool" check metrics
echo "check_metrics: $(grep -c '^# TYPE' "$file") metrics"

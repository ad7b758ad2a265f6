#!/usr/bin/env bash
# One comparison on several machines of a SLURM cluster: starts Ray in the allocation, runs bench on its first machine.
#
#   sbatch docs/slurm.sh --method all --model qwen14b --task mmlu-choice
#
# The cache has to lie where all machines see it; the model is downloaded once, by the first. A run that was cut off
# goes on where it was: submit it again.
#SBATCH --job-name=confbench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@60
set -euo pipefail

: "${CONFBENCH_CACHE:?name a folder that all machines share, e.g. export CONFBENCH_CACHE=/scratch/$USER/confbench}"
export CONFBENCH_CACHE RAY_USAGE_STATS_ENABLED=0
PORT=${CONFBENCH_PORT:-6379}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | tr ' ' '\n' | grep -m 1 -v -e : -e '^127\.')

ray_options=(--disable-usage-stats --num-cpus="${SLURM_CPUS_PER_TASK:-1}" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --block)
srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \
  ray start --head --node-ip-address="$address" --port="$PORT" --include-dashboard=false "${ray_options[@]}" &
until srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" ray status --address="$address:$PORT" >/dev/null 2>&1; do
  sleep 2
done
if ((${#nodes[@]} > 1)); then
  others=$(IFS=,; echo "${nodes[*]:1}")
  srun --nodes=$((${#nodes[@]} - 1)) --ntasks-per-node=1 --overlap --nodelist="$others" \
    ray start --address="$address:$PORT" "${ray_options[@]}" &
fi

# bench waits for its first worker and takes the others as they come; with --workers it knows how many there will be.
workers=$((${#nodes[@]} * ${SLURM_GPUS_ON_NODE:-1}))
srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \
  bench run --engine ray --address "$address:$PORT" --workers "$workers" "$@" &
run=$!
trap 'kill -TERM "$run"' TERM
status=0
wait "$run" || status=$?
kill $(jobs -p) 2>/dev/null || true # Ray, which ends with its first process
exit "$status"

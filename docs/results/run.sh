#!/usr/bin/env bash
# Measure every mapping on real data with the small configuration: docs/results/run.sh DATA OUT [SEED ...]
#
# DATA holds the corpora, which are not part of this project:
#   multi30k/{train,val,test_2016_flickr}.{en,de}.gz   line-parallel, tokenized, lower-cased
#   snli/snli_1.0_{train,dev}.jsonl.gz                 SNLI's JSON lines
#   glove/glove.6B.50d.txt.gz                          GloVe's text format
#   sentcomp/{train,valid}.{article,title,mask}.txt.gz the mask has one 0 or 1 for each word of the article
# Runs go to OUT with one thread each, JOBS at a time (2), and take only processor time that nobody else wants. A killed run
# continues when the script is started again. Each finished result is kept in docs/results/runs and its run is skipped
# from then on. MORE=1 also trains the other seeds of de-en and of oscarmax and sqpnormmax in summarization, fusedmax's
# default in de-en, and repeats the results that were kept without the statistics of sentences. CURVES=1 trains the runs
# without scaling or annealing whose learning curves docs/results/real-data.md shows.
set -euo pipefail
shopt -s nullglob
here=$(cd "$(dirname "$0")" && pwd)
data=$1 out=$2
seeds=("${@:3}")
((${#seeds[@]})) || seeds=(0 1 2)
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
mkdir -p "$out"
# Linux divides the processor between sessions before it looks at the priorities inside them.
echo 19 2> /dev/null > /proc/self/autogroup || true
lowest=(nice -n 19)
if chrt --idle 0 true 2> /dev/null; then lowest=(chrt --idle 0); fi

# The development set is divided by image into one that chooses the epoch and one that is only tested on: the pairs of a
# premise stay together.
python - "$data/snli/snli_1.0_dev.jsonl.gz" "$out"/snli.{dev,test}.jsonl << 'SPLIT'
import gzip, json, sys

lines = gzip.open(sys.argv[1], "rt", encoding="utf-8").readlines()
images = [json.loads(line)["pairID"].partition("#")[0] for line in lines]
numbers = {image: i for i, image in enumerate(dict.fromkeys(images))}
for half, path in enumerate(sys.argv[2:]):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line for line, image in zip(lines, images) if numbers[image] % 2 == half)
SPLIT

# The validation set is large: the first 2,000 pairs are the test set, the next 1,000 the development set.
for part in article title mask; do
  gzip -dc "$data/sentcomp/valid.$part.txt.gz" | sed -n '1,2000p' > "$out/sentcomp.test.$part"
  gzip -dc "$data/sentcomp/valid.$part.txt.gz" | sed -n '2001,3000p' > "$out/sentcomp.dev.$part"
done

kept=${MORE:+sentences.json.gz} # what a kept result must have
declare -A started # a run may still be training when its name comes up again
train() { # FOLDER TASK OPTIONS...
  local folder=$out/$1 resume=()
  if [[ ${started[$folder]:-} || -e $folder/result.json || -e $here/runs/$1/${kept:-result.json} ]]; then return; fi
  started[$folder]=yes
  if [[ -e $folder/config.json ]]; then resume=(--resume); fi
  while (($(jobs -rp | wc -l) >= ${JOBS:-2})); do wait -n; done
  {
    if "${lowest[@]}" regmax train "${@:2}" --no-tensorboard --out "$folder" "${resume[@]}" >> "$folder.log" 2>&1; then
      python "$here/keep.py" "$out"
    else echo "failed: $folder.log"; fi
  } &
}

translation() { # FOLDER SOURCE TARGET OPTIONS...
  local m=$data/multi30k
  train "$1" translation --train "$m/train.$2.gz" "$m/train.$3.gz" --dev "$m/val.$2.gz" "$m/val.$3.gz" \
    --test "$m/test_2016_flickr.$2.gz" "$m/test_2016_flickr.$3.gz" "${@:4}"
}

entailment() { # FOLDER OPTIONS...
  train "$1" entailment --train "$data/snli/snli_1.0_train.jsonl.gz" --dev "$out/snli.dev.jsonl" \
    --test "$out/snli.test.jsonl" --glove "$data/glove/glove.6B.50d.txt.gz" "${@:2}"
}

summarization() { # FOLDER OPTIONS...
  train "$1" summarization --train "$data/sentcomp/train.article.txt.gz" "$data/sentcomp/train.title.txt.gz" \
    --dev "$out/sentcomp.dev.article" "$out/sentcomp.dev.title" \
    --test "$out/sentcomp.test.article" "$out/sentcomp.test.title" --masks "$out/sentcomp.test.mask" "${@:2}"
}

one() { # TASK MAPPING SEED: the mapping with the paper's strengths
  local options=(--mapping "$2" --seed "$3")
  if [[ $2 == fusedmax ]]; then options+=(--lam 0.1 --grow-end 0); fi
  run "$1" "$1-$2-$3" "${options[@]}"
}

grown() { # TASK LAM BEGIN END SEED: lam grows from zero between these fractions of the steps
  run "$1" "$1-fusedmax-grown-$2-$5" --mapping fusedmax --lam "$2" --grow-begin "$3" --grow-end "$4" --seed "$5"
}

run() { # TASK FOLDER OPTIONS...
  case $1 in
    en-de | de-en) translation "$2" "${1%-*}" "${1#*-}" "${@:3}" ;;
    *) "$1" "${@:2}" ;;
  esac
}

# First what explains and shows the most, then what the tables have not, then the deviations, cheap tasks first. `train`
# skips what is there.
mappings=(fusedmax entmax oscarmax softmax sparsemax sqpnormmax)
for task in en-de summarization de-en; do
  for mapping in fusedmax entmax oscarmax; do one "$task" "$mapping" "${seeds[0]}"; done
done
for lam in 0.3 1 1.5 3; do grown en-de "$lam" 0.4 0.7 "${seeds[0]}"; done
for task in entailment en-de; do
  for seed in "${seeds[@]}"; do
    for mapping in "${mappings[@]}"; do one "$task" "$mapping" "$seed"; done
  done
done
for lam in 1 1.5; do # the default and the next larger one
  for seed in "${seeds[@]}"; do grown en-de "$lam" 0.4 0.7 "$seed"; done
done
for seed in "${seeds[@]}"; do
  for mapping in softmax sparsemax fusedmax entmax; do one summarization "$mapping" "$seed"; done
done
for seed in "${seeds[@]}"; do grown summarization 0.1 0.2 0.5 "$seed"; done # the default
for seed in "${seeds[@]}"; do grown entailment 1 0.4 0.7 "$seed"; done
for lam in 1 3; do
  for task in entailment summarization; do grown "$task" "$lam" 0.4 0.7 "${seeds[0]}"; done
done
for task in entailment summarization; do grown "$task" 0.3 0.4 0.7 "${seeds[0]}"; done
for task in summarization de-en; do
  for mapping in "${mappings[@]}"; do one "$task" "$mapping" "${seeds[0]}"; done
done
if [[ ${MORE:-} ]]; then
  grown de-en 1 0.4 0.7 "${seeds[0]}"
  for task in summarization de-en; do
    for seed in "${seeds[@]}"; do
      for mapping in "${mappings[@]}"; do one "$task" "$mapping" "$seed"; done
    done
  done
fi
wait
python "$here/tables.py"
if [[ -z ${CURVES:-} ]]; then exit; fi

# The same translation without scaling or annealing, in a separate folder so that no table mixes it with the others.
curves=("$out"/en-de-{softmax,sparsemax}-"${seeds[0]}")
out=$out-curves
mkdir -p "$out"
while read -r name options; do
  translation "$name" en de --seed "${seeds[0]}" $options
done << 'RUNS'
softmax-raw --mapping softmax --no-scaled
sparsemax-fixed --mapping sparsemax --anneal-from 0
sparsemax-raw --mapping sparsemax --no-scaled
sparsemax-raw-fixed --mapping sparsemax --no-scaled --anneal-from 0
RUNS
wait
regmax plot curves "${curves[@]}" "$out"/*/ --out "$out"

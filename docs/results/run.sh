#!/usr/bin/env bash
# Measure every mapping on real data with the small configuration: docs/results/run.sh DATA OUT [SEED ...]
#
# DATA holds the corpora, which are not part of this project:
#   multi30k/{train,val,test_2016_flickr}.{en,de}.gz   line-parallel, tokenized, lower-cased
#   snli/snli_1.0_{train,dev}.jsonl.gz                 SNLI's JSON lines
#   glove/glove.6B.50d.txt.gz                          GloVe's text format
#   sentcomp/{train,valid}.{article,title,mask}.txt.gz the mask has one 0 or 1 for each word of the article
# Runs go to OUT, two at a time with one thread each, at low priority; a finished run is skipped, a killed one continues.
set -euo pipefail
data=$1 out=$2
seeds=("${@:3}")
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
mkdir -p "$out"

# The validation set is large: the first 2,000 pairs are the test set, the next 1,000 the development set.
for part in article title mask; do
  gzip -dc "$data/sentcomp/valid.$part.txt.gz" | sed -n '1,2000p' > "$out/sentcomp.test.$part"
  gzip -dc "$data/sentcomp/valid.$part.txt.gz" | sed -n '2001,3000p' > "$out/sentcomp.dev.$part"
done

train() { # FOLDER TASK OPTIONS...
  local folder=$out/$1
  if [[ -e $folder/result.json ]]; then return; fi
  local resume=()
  if [[ -e $folder/config.json ]]; then resume=(--resume); fi
  nice regmax train "${@:2}" --out "$folder" "${resume[@]}" > "$folder.log" 2>&1 || echo "failed: $folder.log"
}

translation() { # FOLDER SOURCE TARGET OPTIONS...
  local m=$data/multi30k
  train "$1" translation --train "$m/train.$2.gz" "$m/train.$3.gz" --dev "$m/val.$2.gz" "$m/val.$3.gz" \
    --test "$m/test_2016_flickr.$2.gz" "$m/test_2016_flickr.$3.gz" "${@:4}"
}

all() { # MAPPING SEED
  local options=(--mapping "$1" --seed "$2")
  translation "en-de-$1-$2" en de "${options[@]}"
  translation "de-en-$1-$2" de en "${options[@]}"
  train "entailment-$1-$2" entailment --train "$data/snli/snli_1.0_train.jsonl.gz" \
    --dev "$data/snli/snli_1.0_dev.jsonl.gz" --test "$data/snli/snli_1.0_dev.jsonl.gz" \
    --glove "$data/glove/glove.6B.50d.txt.gz" "${options[@]}"
  train "summarization-$1-$2" summarization \
    --train "$data/sentcomp/train.article.txt.gz" "$data/sentcomp/train.title.txt.gz" \
    --dev "$out/sentcomp.dev.article" "$out/sentcomp.dev.title" \
    --test "$out/sentcomp.test.article" "$out/sentcomp.test.title" --masks "$out/sentcomp.test.mask" "${options[@]}"
}

for seed in "${seeds[@]:-0}"; do
  for mapping in softmax sparsemax fusedmax oscarmax sqpnormmax entmax; do
    all "$mapping" "$seed" &
    while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
  done
done
wait
regmax table "$out" --format markdown > "$out/tables.md"
# The same translation without scaling or annealing, in a separate folder so that no table mixes it with the others.
curves=("$out"/en-de-{softmax,sparsemax}-"${seeds[0]:-0}")
out=$out-curves
mkdir -p "$out"
while read -r name options; do
  translation "$name" en de --seed "${seeds[0]:-0}" $options &
  while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
done << 'RUNS'
softmax-raw --mapping softmax --no-scaled
sparsemax-fixed --mapping sparsemax --anneal-from 0
sparsemax-raw --mapping sparsemax --no-scaled
sparsemax-raw-fixed --mapping sparsemax --no-scaled --anneal-from 0
RUNS
wait
regmax plot curves "${curves[@]}" "$out"/*/ --out "$out"

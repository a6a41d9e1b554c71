#!/bin/sh
# The MMA curves of the paper in both directions, each model from the multi-path run of its direction:
#   sh recipes/mma/train.sh [en-vi | vi-en]
# What is trained already is not trained again. A model is 2,000 updates and one pass over the test set.
set -e
for pair in ${1:-en-vi vi-en}; do
    python -m whilst train "recipes/iwslt15.$pair.mma.toml" recipes/mma/iwslt15."$pair".*.toml
done

#!/bin/sh
# The whole method on an invented language: text, translator, search, agent, quality/latency curve (CPU, four minutes).
# Run this in the root of the repository with the virtual environment active, or by `make toy`. It resumes where it stopped.
set -eux
whilst prepare recipes/toy/bs-simt.toml
whilst train recipes/toy/bs-simt.toml --device cpu
whilst evaluate runs/toy/search --policy wait-1 --policy wait-3 --policy wait-5 \
    --policy agent-1 --policy agent-2 --policy agent-4 --policy oracle-1 --device cpu
whilst report runs/toy/search/evaluations --out runs/toy/report
head -n 3 data/toy-20000-1/test.src | whilst translate runs/toy/search --policy agent-1 --show --device cpu

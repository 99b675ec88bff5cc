#!/usr/bin/env bash
# Names the hardware profile (cost/profiles) for a GPU by the driver's name for it, or nothing if no profile fits:
#
#   ./profile.sh "NVIDIA H100 80GB HBM3"
#
# Boards of one name differ: those for PCIe slots have less bandwidth than the profiles say.
set -eu

case "${1:-}" in
  *PCIe* | *PCIE* | *" NVL"*) ;;
  *A100-SXM*80GB*) echo a100-nvlink ;;
  *"H100 80GB HBM3"*) echo h100-nvlink ;;
  *H200*) echo h200-nvlink ;;
  *"RTX A6000"*) echo a6000-pcie ;;
esac

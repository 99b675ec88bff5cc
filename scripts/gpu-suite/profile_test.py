#!/usr/bin/env python3
"""Tests profile.sh with what drivers call GPUs.

    python3 scripts/gpu-suite/profile_test.py
"""

import os
import subprocess
import unittest

here = os.path.dirname(os.path.abspath(__file__))


class Profile(unittest.TestCase):
    def test_names(self):
        for name, want in {
            "  GPU 0: NVIDIA H100 80GB HBM3, sm_90, 85.0 GB, 132 SMs, PCI 0000:01:00.0": "h100-nvlink", "NVIDIA H100 PCIe": "", "NVIDIA H100 NVL": "",
            "NVIDIA A100-SXM4-80GB": "a100-nvlink", "NVIDIA A100-SXM4-40GB": "", "NVIDIA A100 80GB PCIe": "", "NVIDIA A100-PCIE-40GB": "",
            "NVIDIA H200": "h200-nvlink", "NVIDIA H200 NVL": "", "NVIDIA RTX A6000": "a6000-pcie", "NVIDIA RTX 6000 Ada Generation": "", "": "",
        }.items():
            got = subprocess.run([os.path.join(here, "profile.sh"), name], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
            self.assertEqual(got, want, name)
            if want:
                self.assertTrue(os.path.exists(os.path.join(here, "..", "..", "cost", "profiles", want + ".json")), want)


if __name__ == "__main__":
    unittest.main()

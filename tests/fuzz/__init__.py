"""Inputs that a fuzzer makes up, guided by which lines they reach: one line each target in `fuzzer.TARGETS`."""

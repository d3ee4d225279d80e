"""Inputs that a fuzzer makes up, guided by which lines they reach: one file a target, one line each in `TARGETS`."""

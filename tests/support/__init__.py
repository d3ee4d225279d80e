"""Doubles and helpers that tests of several kinds share."""

"""Tests of the files for installing, running and observing the listener."""

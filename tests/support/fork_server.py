"""The last module that the fork server imports, see `tests.support.processes`. Nothing else may import this module."""

import gc

# Otherwise each collection in a fork would visit, and so copy, everything that was imported before the fork.
gc.freeze()

"""The last module that the fork server imports, see `tests.support.processes`. Nothing else may import this module."""

import gc
import inspect

# It finds out once where every module lies. Otherwise each fork in which a test fails would do so.
inspect.getmodule(inspect.currentframe())
# Otherwise each collection in a fork would visit, and so copy, everything that was imported before the fork.
gc.freeze()

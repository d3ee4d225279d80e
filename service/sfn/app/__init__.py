"""The composition root: from the settings to the parts of one process. Adapters are named here alone."""

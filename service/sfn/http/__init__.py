"""Where events arrive over HTTP."""

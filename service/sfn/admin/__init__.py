"""What operators do over HTTP."""

"""Files for those who deploy the service, tested with the tools of their formats."""

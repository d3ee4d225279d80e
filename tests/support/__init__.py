"""What tests of several folders share: running services and listeners, waiting, processes, pages of measurements."""

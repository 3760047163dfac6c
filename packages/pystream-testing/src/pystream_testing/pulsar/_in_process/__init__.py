"""The parts of the in-process Pulsar transport; `pystream_testing.pulsar.in_process` has what is public."""

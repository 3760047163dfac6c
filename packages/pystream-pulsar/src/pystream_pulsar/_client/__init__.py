"""The transport over `pulsar-client`: the only package that imports it."""

"""The numbered contracts: what klaud relies on of GitHub, each a few real requests to a repository that may be written to.

They hold the embedded GitHub in the tests, and the real one by ``klaud conformance --live``: the same functions, so that the
two cannot drift apart unseen.
"""

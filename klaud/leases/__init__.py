"""Claims, leases, ledgers and the memory refs: who may do what, and what was done, kept in git refs."""

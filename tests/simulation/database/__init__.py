"""A twin of the shared inbox's database in memory: what the port to it promises, READ COMMITTED, seeded interleaving.

Everything above the port is the service's own code, from the verbs to the pool of connections and the group commit.
"""

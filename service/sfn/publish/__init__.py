"""What becomes of a table's files: the decision, pure, and the protocol that carries it out."""

"""How the code base is built: sizes, names and wording, measured and kept within limits (`make shape`)."""

"""Five language models of a few megabytes, and the code that makes them."""

"""One machine, one memory budget, many MLX models, and an operator who watches."""

__version__ = "0.1.0"

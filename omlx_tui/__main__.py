"""``python -m omlx_tui``."""

from omlx_tui.cli import main

main()

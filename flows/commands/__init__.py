"""The subcommands of ``dovetail``: a thin file each, with NAME, HELP, ``add_arguments`` and ``run``."""

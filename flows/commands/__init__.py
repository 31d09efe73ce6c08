"""The subcommands of ``dovetail``: a thin file each, with ``add_arguments`` and ``run``; `cli.COMMANDS` lists them."""

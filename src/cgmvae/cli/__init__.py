"""The command line: ``cgmvae …``, one thin file a subcommand."""

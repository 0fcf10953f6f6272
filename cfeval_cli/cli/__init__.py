"""The sub-commands, one file each, with their heavy imports inside."""

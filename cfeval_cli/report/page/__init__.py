"""Reports as single HTML files, built from the files of run folders."""

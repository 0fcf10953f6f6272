"""Renderers of tables: terminal, narrow screen, Markdown, LaTeX, HTML and CSV."""

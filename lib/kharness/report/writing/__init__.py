"""The summary's files: JSON, CSV, Markdown, HTML, JUnit."""

"""Curves as a page draws them: sharp at any size, in the page's colors, with letters that stay readable."""

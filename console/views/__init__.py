"""Pages. A view reads the request, calls one service or selector, and renders."""

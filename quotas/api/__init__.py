"""REST doors of this app, and the frame that the API of every app stands in."""

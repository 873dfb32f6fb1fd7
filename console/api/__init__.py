"""The API's own pages: its schema, its documentation, and the answer for what is not there."""

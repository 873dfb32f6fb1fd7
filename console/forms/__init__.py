"""Forms of the console: they read shapes; what an input means is checked by the services."""

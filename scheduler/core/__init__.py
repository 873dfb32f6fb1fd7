"""The scheduling core: plain functions on frozen data, no Django and none of our other packages."""

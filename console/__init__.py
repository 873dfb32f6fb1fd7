"""The web console, and the project's settings, addresses and Celery application."""

from console.celery import app as celery_app

__all__ = ["celery_app"]

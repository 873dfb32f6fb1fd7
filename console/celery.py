"""The Celery application: `python -m celery -A console.celery worker`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("tidegate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

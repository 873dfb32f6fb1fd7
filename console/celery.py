"""The Celery application: `python -m celery -A console.celery worker`."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("tidegate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def keep_project_logging(**_: Any) -> None:
    """Celery replaces all log handlers unless somebody takes this signal; Django has set ours up already."""

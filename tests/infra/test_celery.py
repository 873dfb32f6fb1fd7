"""Celery's settings name tasks that exist, and no task can be lost or hang for ever."""

from django.conf import settings

from console.celery import app


def test_every_task_that_settings_name_is_registered() -> None:
    app.loader.import_default_modules()
    named = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} | set(settings.CELERY_TASK_ROUTES)
    assert named - set(app.tasks) == set()


def test_ticks_that_nobody_took_do_not_pile_up() -> None:
    """A message is void soon after the next one of its kind is due."""
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        assert 0 < entry["options"]["expires"] <= max(5, entry["schedule"])


def test_a_task_of_a_dead_worker_comes_back_and_none_hangs_for_ever() -> None:
    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert app.conf.worker_prefetch_multiplier == 1
    longest_s = app.conf.task_time_limit
    assert longest_s < app.conf.broker_transport_options["visibility_timeout"]

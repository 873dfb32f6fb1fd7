"""How often one caller may ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which itself reads this class from the settings

WINDOW_S = 60

log = structlog.get_logger(__name__)


class MinuteThrottle(BaseThrottle):
    """At most ``API_REQUESTS_PER_MINUTE`` requests a minute for each token, and for the sessions of each person.

    Without an answer from the cache nobody is held up: the limit protects the service, not the data.
    """

    def allow_request(self, request: Request, view: APIView) -> bool:
        window = int(time.time()) // WINDOW_S
        key = f"api-rate:{caller(request)}:{window}"
        try:
            cache.add(key, 0, timeout=2 * WINDOW_S)
            return int(cache.incr(key)) <= settings.API_REQUESTS_PER_MINUTE
        except (RedisError, OSError, ValueError) as error:  # ValueError: the key went away in between
            log.warning("rate limit not checked", error=str(error))
            return True

    def wait(self) -> float:
        """Seconds until the next window."""
        return WINDOW_S - time.time() % WINDOW_S


def caller(request: Request) -> str:
    """What the limit counts by; nobody gets here without a token or a session."""
    return f"token-{request.auth.pk}" if request.auth is not None else f"user-{request.user.pk}"

"""Settings read from environment variables, each checked when it is read."""

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


def required(name: str, hint: str) -> str:
    """The variable's value; raises ImproperlyConfigured with the hint when it is missing or empty."""
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set. {hint}")
    return value


def flag(name: str, *, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    word = value.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ImproperlyConfigured(f"{name} must be one of 1, 0, true, false, yes, no, on, off; got {value!r}.")
    return word in _TRUE


def whole_number(name: str, *, default: int, least: int = 0) -> int:
    value = os.environ.get(name, "")
    if not value:
        return default
    if not value.isdecimal() or int(value) < least:
        raise ImproperlyConfigured(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def words(name: str, *, default: str = "") -> list[str]:
    """The comma-separated parts of a variable, without blanks and empty parts."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def text(name: str, *, default: str = "") -> str:
    return os.environ.get(name, default).strip()


def origins(address: str) -> list[str]:
    """Scheme and host of an address, in a list; an empty list for none. Anything but http and https is refused."""
    if not address:
        return []
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ImproperlyConfigured(f"{address!r} must be an address like https://login.example.org/realm.")
    return [f"{parts.scheme}://{parts.netloc}"]


def database(url: str) -> dict[str, Any]:
    """Django's settings for one PostgreSQL address.

    A folder for a Unix socket may stand in the host's place, percent-encoded, or in a `host` parameter;
    any other parameter goes to the driver as it is (`sslmode=require`). Other databases are refused.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise ImproperlyConfigured("DATABASE_URL must start with postgresql://; Tidegate runs on PostgreSQL only.")
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "tidegate",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),
        "PORT": options.pop("port", str(parts.port or "")),
        "OPTIONS": options,
    }


def celery_broker(redis_url: str) -> str:
    """Celery's spelling of a Redis address; only Unix sockets are spelled differently there."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    database_number = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database_number}"

"""Who acts: a person (perhaps through a token) or the system itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from quotas.models import User


@dataclass(frozen=True, slots=True)
class Origin:
    """The door a request came through and the address it came from."""

    door: str  # console, api, command, system
    address: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """The scheduler, a clock or a command: it may do everything and is named in events.

    ``origin``: where the request came from that made it act, for what happens before anybody has signed in.
    """

    name: str = "system"
    origin: Origin | None = None


SYSTEM = System()

Actor: TypeAlias = "User | System"

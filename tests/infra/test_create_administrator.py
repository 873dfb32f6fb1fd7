"""The command for the first person of an installation."""

import pytest
from django.core.management import CommandError, call_command

from quotas.models import AuditEvent, PlatformRole, User

_PASSWORD = "long enough, and not common"


@pytest.mark.django_db
def test_makes_an_administrator_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_PASSWORD", _PASSWORD)
    call_command("create_administrator", "ada", "--email", "ada@example.org")
    user = User.objects.get(username="ada")
    assert (user.platform_role, user.email) == (PlatformRole.ADMINISTRATOR, "ada@example.org")
    assert user.check_password(_PASSWORD)
    assert AuditEvent.objects.filter(verb="user.created").count() == 1
    assert capsys.readouterr().out == "ada may sign in.\n"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "password", "complaint"),
    [(["ada"], "short", "password: "), (["ada", "--email", "nowhere"], _PASSWORD, "email: ")],
)
def test_what_is_wrong_is_named_and_nobody_is_made(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], password: str, complaint: str
) -> None:
    monkeypatch.setenv("TIDEGATE_PASSWORD", password)
    with pytest.raises(CommandError, match=f"^{complaint}"):
        call_command("create_administrator", *arguments)
    assert not User.objects.exists()


@pytest.mark.django_db
def test_a_name_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PASSWORD", _PASSWORD)
    call_command("create_administrator", "ada")
    with pytest.raises(CommandError, match=r"username: .ADA. is already taken"):
        call_command("create_administrator", "ADA")
    assert User.objects.count() == 1

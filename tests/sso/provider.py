"""A small identity provider for the tests: django-oauth-toolkit in a process and a database of its own.

    python -m tests.sso.provider FOLDER PORT CLIENT SECRET REDIRECT

People are read from FOLDER/people.json at every question, so that a test may change somebody's groups.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import django
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.urls import include, path

PASSWORD = "a long enough pass phrase"
urlpatterns: list[Any] = []


def people(folder: Path) -> dict[str, dict[str, Any]]:
    """Name -> e-mail address and groups."""
    found: dict[str, dict[str, Any]] = json.loads((folder / "people.json").read_text(encoding="utf-8"))
    return found


def configure(folder: Path) -> None:
    """Settings of the provider's own Django."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    settings.configure(
        SECRET_KEY="of the provider in the tests",
        ALLOWED_HOSTS=["127.0.0.1"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "provider.sqlite3")}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        ROOT_URLCONF="tests.sso.provider",
        SESSION_COOKIE_NAME="provider_session",
        LOGIN_URL="/login/",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "context_processors": ["django.template.context_processors.request"],
                    "loaders": [
                        (
                            "django.template.loaders.locmem.Loader",
                            {"registration/login.html": "{% csrf_token %}{{ form }}"},
                        )
                    ],
                },
            },
        ],
        PROVIDER_FOLDER=folder,
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": pem,
            "OAUTH2_VALIDATOR_CLASS": "tests.sso.claims.Claims",
            "SCOPES": {"openid": "who you are", "profile": "your name", "email": "your address"},
        },
    )


def prepare(folder: Path, client: str, secret: str, redirect: str) -> None:
    """Tables, people and the one application."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.views import LoginView
    from oauth2_provider.models import get_application_model

    urlpatterns[:] = [path("login/", LoginView.as_view()), path("o/", include("oauth2_provider.urls"))]
    call_command("migrate", verbosity=0)
    for name, facts in people(folder).items():
        get_user_model().objects.create_user(name, facts["email"], PASSWORD)
    get_application_model().objects.create(
        name="Tidegate",
        client_id=client,
        client_secret=secret,
        redirect_uris=redirect,
        client_type="confidential",
        authorization_grant_type="authorization-code",
        algorithm="RS256",
        skip_authorization=True,
    )


def main() -> None:
    """Serve until killed."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    configure(folder)
    django.setup()
    # The address module must be this one, not the copy that runs as a program.
    from tests.sso import provider

    provider.prepare(folder, *sys.argv[3:6])
    with make_server("127.0.0.1", port, get_wsgi_application()) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()

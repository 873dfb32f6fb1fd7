"""Every address of the project."""

from django.urls import URLPattern, URLResolver, include, path

from console import health
from console.accounts import no_page
from console.api.views import any_server_error

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("accounts/email/", no_page),
    path("accounts/", include("allauth.account.urls")),
    path("accounts/", include("allauth.socialaccount.providers.openid_connect.urls")),
    path("accounts/sso/", include("allauth.socialaccount.urls")),
    path("api/v1/", include("console.api_urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("console.page_urls")),
]

handler500 = any_server_error

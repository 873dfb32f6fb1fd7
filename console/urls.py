"""Every address of the project."""

from allauth.socialaccount.views import login_cancelled, login_error
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
    path("accounts/sso/signup/", no_page, name="socialaccount_signup"),
    path("accounts/sso/connections/", no_page, name="socialaccount_connections"),
    path("accounts/sso/error/", login_error, name="socialaccount_login_error"),
    path("accounts/sso/cancelled/", login_cancelled, name="socialaccount_login_cancelled"),
    path("api/v1/", include("console.api_urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("console.page_urls")),
]

handler500 = any_server_error

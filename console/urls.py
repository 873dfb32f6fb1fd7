"""Every address of the project."""

from django.urls import URLPattern, URLResolver, include, path

from console import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("accounts/", include("allauth.account.urls")),
    path("api/v1/", include("console.api_urls")),
    path("", include("console.page_urls")),
]

"""Every address under ``/api/v1``: the calls of each app, the schema, and a page that shows it."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path

from console.api.views import docs, nothing_here, openapi

urlpatterns: list[URLPattern | URLResolver] = [
    path("openapi.json", openapi, name="api-openapi"),
    path("docs", docs, name="api-docs"),
    re_path("", nothing_here),
]

"""Settings of the project, the same file everywhere; what differs between places comes from the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from console import environment

BASE_DIR = Path(__file__).resolve().parent.parent
_START = "Start with ./dev, which sets it, or see docs/deployment.md."

# A person's own machine: plain HTTP, static files straight from their folders, mail printed to the log.
LOCAL = environment.flag("TIDEGATE_LOCAL", default=False)
DEBUG = environment.flag("TIDEGATE_DEBUG", default=False)
SECRET_KEY = environment.required("TIDEGATE_SECRET_KEY", _START)
ALLOWED_HOSTS = environment.words("TIDEGATE_ALLOWED_HOSTS", default="localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = environment.words("TIDEGATE_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.forms",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "csp",
    "django_filters",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "template_partials",
    "quotas",
    "workloads",
    "scheduler",
    "console",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "quotas.origins.OriginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.middleware.ReaderMiddleware",
    "console.middleware.RefusalMiddleware",
]
ROOT_URLCONF = "console.urls"
WSGI_APPLICATION = "console.wsgi.application"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.frame.sign_on",
                "console.frame.frame",
            ],
        },
    },
]

# Database, cache, broker
DATABASES = {
    "default": {
        **environment.database(environment.required("DATABASE_URL", _START)),
        "CONN_HEALTH_CHECKS": True,
    },
}
if environment.flag("TIDEGATE_DATABASE_POOL", default=True):
    DATABASES["default"]["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": environment.whole_number("TIDEGATE_DATABASE_POOL_SIZE", default=8, least=1),
        "timeout": 10,
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = environment.required("REDIS_URL", _START)
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "tidegate",
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 5},
    },
}

# Sign-in
AUTH_USER_MODEL = "quotas.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": 10}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "console.accounts.ClosedSignupAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = LOGIN_URL
ACCOUNT_RATE_LIMITS = {"login": "60/m/ip", "login_failed": "20/m/ip,5/5m/key"}
ALLAUTH_TRUSTED_PROXY_COUNT = environment.whole_number("TIDEGATE_PROXIES", default=0)

# Single sign-on with OpenID Connect, where an identity provider is named
OIDC_SERVER = environment.text("TIDEGATE_OIDC_SERVER")
OIDC_NAME = environment.text("TIDEGATE_OIDC_NAME", default="Single sign-on")
OIDC_GROUPS_CLAIM = environment.text("TIDEGATE_OIDC_GROUPS_CLAIM", default="groups")
SOCIALACCOUNT_ADAPTER = "console.sso.SingleSignOn"
SOCIALACCOUNT_AUTO_SIGNUP = True
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "SCOPE": environment.words("TIDEGATE_OIDC_SCOPES", default="openid,profile,email"),
        "APPS": [
            {
                "provider_id": "sso",
                "name": OIDC_NAME,
                "client_id": environment.text("TIDEGATE_OIDC_CLIENT"),
                "secret": environment.text("TIDEGATE_OIDC_SECRET"),
                "settings": {"server_url": OIDC_SERVER},
            },
        ]
        if OIDC_SERVER
        else [],
    },
}

# Transport and browser safety
_HTTPS = not (LOCAL or DEBUG)
SESSION_COOKIE_NAME = "tidegate_session"
SESSION_COOKIE_AGE = int(timedelta(hours=12).total_seconds())
SESSION_COOKIE_SECURE = _HTTPS
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "tidegate_csrf"
CSRF_COOKIE_SECURE = _HTTPS
CSRF_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_SECURE = _HTTPS
LANGUAGE_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = _HTTPS and environment.flag("TIDEGATE_SSL_REDIRECT", default=True)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if _HTTPS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if ALLAUTH_TRUSTED_PROXY_COUNT:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF, *environment.origins(OIDC_SERVER)],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 2**20
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000
DATA_UPLOAD_MAX_NUMBER_FILES = 5

# Languages and time
LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("es", _("Spanish")), ("tr", _("Turkish")), ("zh-hans", _("Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

# Static files
STATIC_URL = "/static/"
STATIC_ROOT = None if LOCAL else BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = LOCAL
_STATIC_STORAGE = (
    "django.contrib.staticfiles.storage.StaticFilesStorage"
    if LOCAL or DEBUG
    else "whitenoise.storage.CompressedManifestStaticFilesStorage"
)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _STATIC_STORAGE},
}

# Mail
EMAIL_BACKEND = f"django.core.mail.backends.{'console' if LOCAL else 'smtp'}.EmailBackend"

# API
API_BODY_BYTES = 2 * 2**20
API_REQUESTS_PER_MINUTE = environment.whole_number("TIDEGATE_API_REQUESTS_PER_MINUTE", default=1200, least=1)
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "quotas.api.authentication.TokenAuthentication",
        "quotas.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["quotas.api.throttling.MinuteThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["quotas.api.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "quotas.api.schema.ApiSchema",
    "EXCEPTION_HANDLER": "quotas.api.problems.handle",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Tidegate",
    "DESCRIPTION": "Resource quotas, workloads and scheduling of GPU clusters. Amounts are whole numbers in base units:"
    " `gpu_milli` (thousandths of a GPU), `cpu_milli` (thousandths of a core), `memory_mib`.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SCHEMA_COERCE_PATH_PK_SUFFIX": True,
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_SUFFIX": "",
    "ENUM_NAME_OVERRIDES": {
        "Kind": "workloads.models.Kind",
        "NodeState": "quotas.models.NodeState",
        "Role": "quotas.models.Role",
        "GivenRole": "quotas.api.bodies.GIVEN_ROLES",
        "Level": "quotas.api.governing.LEVELS",
        "State": "workloads.models.State",
        "WaitReason": "workloads.api.shapes.REASONS",
    },
    "PATH_CONVERTER_OVERRIDES": {"int": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "quotas.api.schema.publish_rules",
    ],
}

# Tasks. Work is named in rows of the database, so a lost message delays it and never loses it.
CELERY_BROKER_URL = environment.celery_broker(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": "tidegate:",
    "socket_connect_timeout": 2,
    "visibility_timeout": int(timedelta(minutes=10).total_seconds()),
}
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = int(timedelta(minutes=5).total_seconds())
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 2.0  # seconds for the task in hand when a worker is to end at once
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_TASK_ROUTES = {"scheduler.tasks.cycle": {"queue": "scheduler"}}
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "tick": {"task": "scheduler.tasks.tick", "schedule": 1.0, "options": {"expires": 5}},
    "trim": {"task": "scheduler.tasks.trim", "schedule": 3600.0, "options": {"expires": 600}},
}

# Logs: lines for people on a person's own machine, JSON for machines elsewhere
_STAMPS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
structlog.configure(
    processors=[*_STAMPS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
_RENDERERS: list[Any] = (
    [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
    if LOCAL
    else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
)
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "structured": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _STAMPS,
            "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_RENDERERS],
        },
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        # Each writes a line for every task of every second, or every request.
        name: {"level": "WARNING"}
        for name in ("celery.app.trace", "celery.beat", "celery.worker.strategy", "httpx")
    },
}

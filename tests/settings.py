"""Settings of the test suite: the project's own, on a database of this run."""

import os

from console.settings import *  # noqa: F403
from console.settings import DATABASES

DATABASES["default"]["TEST"] = {"NAME": f"test_tidegate_{os.environ.get('TIDEGATE_TEST_NAME', 'default')}"}
DATABASES["default"]["OPTIONS"].pop("pool", None)  # each test thread closes its own connection
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"

CRASH_FILE = os.environ.get("TIDEGATE_CRASH_FILE")  # names the point at which a worker of the crash tests is to end

# syntax=docker/dockerfile:1
# Two stages: the first has the tools that build, Node among them; the second has only what runs, as an ordinary user.

FROM python:3.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
WORKDIR /app
COPY requirements.txt requirements-assets.txt ./
RUN /opt/venv/bin/pip install --require-hashes -r requirements.txt
COPY . .
RUN TIDEGATE_VENV=/opt/venv /opt/venv/bin/python -m tools.devtool.build \
    && TIDEGATE_SECRET_KEY=build DATABASE_URL=postgresql:///none REDIS_URL=redis://none \
       /opt/venv/bin/python manage.py collectstatic --no-input \
    && /opt/venv/bin/python -m compileall -q console quotas scheduler workloads \
    && rm -rf node_modules var tools requirements-*.txt

FROM python:3.13-slim-bookworm
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin tidegate
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=console.settings
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
USER tidegate
EXPOSE 8000
CMD ["gunicorn", "console.wsgi:application", "--worker-class", "gthread", "--threads", "8", "--bind", "0.0.0.0:8000", "--worker-tmp-dir", "/dev/shm", "--no-control-socket"]

# Sluice as an image: docs/how-to/operations.md says how to run it.
# The base is pinned by the digest of its index, for all platforms; the tag says what that is. docs/how-to/operations.md says how to move it.
ARG BASE=python:3.11.16-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
FROM ${BASE} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/build.txt requirements/image.txt requirements/
RUN python -m venv /opt/build && /opt/build/bin/python -m pip install --require-hashes -r requirements/build.txt
RUN python -m venv /opt/sluice && /opt/sluice/bin/python -m pip install --require-hashes --only-binary :all: -r requirements/image.txt
COPY pyproject.toml README.md ./
COPY protocol protocol
COPY quota quota
COPY metering_format metering_format
COPY proxy proxy
COPY sluice sluice
COPY sluice_cli sluice_cli
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
    && /opt/sluice/bin/python -m pip install --no-index --no-deps /dist/*.whl \
    && /opt/sluice/bin/sluice --version

FROM ${BASE}
RUN groupadd --gid 10001 sluice && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin sluice
COPY --from=build /opt/sluice /opt/sluice
ENV PATH=/opt/sluice/bin:$PATH PYTHONDONTWRITEBYTECODE=1 SLUICE_ADMIN=127.0.0.1:9644
# Here lie sluice.toml, quotas.toml and the module of a callback, if there is one. Nothing is written but what these ask for.
WORKDIR /etc/sluice
USER 10001:10001
# No EXPOSE: the ports are the listener's address and, for each broker, first_broker_port + node id, all of your choice.
STOPSIGNAL SIGTERM
# Needs [admin] address = "127.0.0.1:9644", or SLUICE_ADMIN set to what it is.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://' + os.environ['SLUICE_ADMIN'] + '/healthz', timeout=3)"]
ENTRYPOINT ["sluice"]
CMD ["run", "--config", "/etc/sluice/sluice.toml"]

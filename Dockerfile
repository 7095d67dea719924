# Sluice as an image: docs/how-to/operations.md says how to run it, and docs/how-to/install.md how to build it.
# Targets: `proxy` (the default) and `meter`, which also has numpy and pyarrow for metering files and `sluice meter`.
# The base is pinned by the digest of its index, for all platforms; the tag says what that is. docs/how-to/operations.md says how to move it.
ARG BASE=python:3.11.16-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
FROM ${BASE} AS tools
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/build.txt requirements/
RUN python -m venv /opt/build && /opt/build/bin/python -m pip install --require-hashes -r requirements/build.txt

FROM tools AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY quota quota
COPY metering_format metering_format
COPY proxy proxy
COPY pipeline pipeline
COPY sluice sluice
COPY sluice_cli sluice_cli
COPY examples examples
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist

# The environments have no pip of their own: nothing is installed in a running container.
FROM tools AS proxy-packages
COPY requirements/image.txt requirements/
RUN python -m venv --without-pip /opt/sluice \
    && /opt/build/bin/python -m pip --python /opt/sluice/bin/python install --require-hashes --only-binary :all: -r requirements/image.txt
COPY --from=wheel /dist /dist
RUN /opt/build/bin/python -m pip --python /opt/sluice/bin/python install --no-index --no-deps /dist/*.whl && /opt/sluice/bin/sluice --version

FROM tools AS meter-packages
COPY requirements/meter.txt requirements/
RUN python -m venv --without-pip /opt/sluice \
    && /opt/build/bin/python -m pip --python /opt/sluice/bin/python install --require-hashes --only-binary :all: -r requirements/meter.txt
COPY --from=wheel /dist /dist
RUN /opt/build/bin/python -m pip --python /opt/sluice/bin/python install --no-index --no-deps /dist/*.whl && /opt/sluice/bin/sluice meter --help

FROM ${BASE} AS run
RUN groupadd --gid 10001 sluice && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin sluice
ENV PATH=/opt/sluice/bin:$PATH PYTHONDONTWRITEBYTECODE=1 SLUICE_CONFIG=/etc/sluice/sluice.toml
# Here lie sluice.toml, quotas.toml and the module of a callback, if there is one. Nothing is written but what these ask for.
WORKDIR /etc/sluice
USER 10001:10001
# No EXPOSE: the ports are the listener's address and, for each broker, first_broker_port + node id, all of your choice.
STOPSIGNAL SIGTERM
# Asks the admin port of the file in SLUICE_CONFIG, with [admin.tls] too; set SLUICE_CONFIG, or SLUICE_ADMIN, where `run` has other flags.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["sluice", "health"]
ENTRYPOINT ["sluice"]
CMD ["run", "--config", "/etc/sluice/sluice.toml"]

FROM run AS meter
COPY --from=meter-packages /opt/sluice /opt/sluice

FROM run AS proxy
COPY --from=proxy-packages /opt/sluice /opt/sluice

# One base for both stages: Python 3.13.16 on Debian 13, published on 2026-10-09. The digest is that of the index of all
# platforms, so it fits amd64 and arm64. Dependabot and Renovate renew it. To renew it by hand, put the digest here that this
# command prints: docker buildx imagetools inspect python:3.13-slim-trixie
FROM python:3.13-slim-trixie@sha256:70729b46c69b4f1e97c4822c1af3df53a1476cf5ddc6c087c0c10bc3a5678c2f AS base


FROM base AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Before the code, so that a change of the code downloads nothing again. Wheels only: no lock has what a source distribution
# needs for its build, and a package without a wheel for a platform fails the build of that platform here.
COPY deploy/build.lock deploy/image.lock deploy/
RUN pip install --require-hashes --no-deps --only-binary=:all: -r deploy/build.lock \
 && python -m venv --without-pip /opt/sfn \
 && pip --python /opt/sfn install --require-hashes --no-deps --only-binary=:all: --no-compile -r deploy/image.lock

# Seconds since 1970 for all files that are made here: deploy/docker-bake.hcl passes the time of the commit. It comes after
# the packages, because each new value builds again what follows.
ARG SOURCE_DATE_EPOCH

# Compiled so that no start compares the times of the sources, which a copy may change.
COPY pyproject.toml README.md LICENSE ./
COPY service service
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/sfn install --no-deps --no-index --no-compile dist/*.whl \
 && pip --python /opt/sfn check \
 && /opt/sfn/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/sfn/lib


FROM base

# `useradd` writes the day of its run into a file, unless this one is given.
ARG SOURCE_DATE_EPOCH

# The base has no compiled modules. A read-only container would compile what it imports at each start and each health check.
# The user's numbers are part of the interface: volumes belong to them, and outlive the container.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x /site-packages/ /usr/local/lib/python3.* \
 && groupadd --gid 10001 sfn \
 && useradd --uid 10001 --gid sfn --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sfn \
 && install --directory --owner=sfn --group=sfn --mode=0750 /var/lib/sfn

COPY --from=build /opt/sfn /opt/sfn
COPY deploy/image.toml /etc/sfn/sfn.toml

# No setting of the service: a variable would win over the mounted file. Every command reads from SFN_CONFIG which file that
# is, so `--env SFN_CONFIG=…` names another. SQLite sorts in a file what is too large for its memory, and no other folder is
# sure to be writable.
ENV PATH=/opt/sfn/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    SFN_CONFIG=/etc/sfn/sfn.toml \
    SQLITE_TMPDIR=/var/lib/sfn

# Here the default inbox, sfn/inbox.db, lies in the volume.
WORKDIR /var/lib
VOLUME /var/lib/sfn
EXPOSE 8085

# Numbers, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 10001:10001
STOPSIGNAL SIGTERM

# It reads the configuration that the service reads: another port or TLS needs no other check. The interval of the start
# needs Docker Engine 25 or newer. The interval after it is long, because each check starts a Python.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --start-interval=2s CMD ["sfn", "healthcheck"]
ENTRYPOINT ["sfn"]
CMD ["serve"]

# What every build has in common; deploy/docker-bake.hcl adds the revision, the time, the source and the documentation.
LABEL org.opencontainers.image.title="Iceberg SFN listener" \
      org.opencontainers.image.description="Keeps a small pointer file beside each Apache Iceberg table, so that it can be read without its catalog" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="docker.io/library/python:3.13-slim-trixie"

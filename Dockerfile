# The roles of tokenfleet in one image: `tokenfleet scheduler`, `tokenfleet worker`, and the commands around them.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/tokenfleet
COPY requirements/run.lock requirements/
RUN /opt/tokenfleet/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/run.lock
COPY . .
RUN /opt/tokenfleet/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
COPY --from=build /opt/tokenfleet /opt/tokenfleet
ENV PATH=/opt/tokenfleet/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["tokenfleet"]
CMD ["--help"]

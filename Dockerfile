# Two images. The last one, which a build without --target makes, has the roles: `tokenfleet scheduler`, `tokenfleet worker`,
# and the commands around them. `--target vllm` makes a worker's image with vLLM in it.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/tokenfleet
COPY requirements/run.lock requirements/
RUN /opt/tokenfleet/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/run.lock
COPY . .
RUN /opt/tokenfleet/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM vllm/vllm-openai:v0.33.0 AS vllm
# An environment of its own: vLLM's packages are pinned to each other, and ours must not move them.
RUN uv venv --python /usr/bin/python3 /opt/tokenfleet
RUN --mount=type=bind,source=requirements/run.lock,target=/mnt/run.lock \
    uv pip install --python /opt/tokenfleet/bin/python --no-cache --require-hashes --no-deps -r /mnt/run.lock
RUN --mount=type=bind,target=/mnt/tokenfleet,rw \
    uv pip install --python /opt/tokenfleet/bin/python --no-cache --no-deps --no-build-isolation /mnt/tokenfleet
# Made before a volume is mounted on it: a new volume takes its owner from here.
RUN install -d -o 2000 -g 0 -m 0775 /home/vllm/.cache /home/vllm/.cache/huggingface
ENV PATH=/opt/tokenfleet/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 2000:0
WORKDIR /tmp
ENTRYPOINT ["tokenfleet"]
CMD ["--help"]

FROM python:3.11-slim-bookworm
COPY --from=build /opt/tokenfleet /opt/tokenfleet
# For the batches' files. Made before a volume is mounted on it: a new volume takes its owner from here.
RUN install -d -o 10001 -g 10001 -m 0700 /store
ENV PATH=/opt/tokenfleet/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["tokenfleet"]
CMD ["--help"]

# perfaudit for CI. Reading code needs no torch:
#
#     docker build --tag perfaudit .
#     docker run --rm --volume "$PWD:/src" perfaudit scan .
#
# What runs a training (run, tune, counters and times of gate) needs the environment of that training: add perfaudit to the
# image that trains, or build this one with torch, `--build-arg EXTRAS=[torch]`, and a training that needs nothing else.
FROM python:3.12-slim AS build
WORKDIR /perfaudit
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG EXTRAS=""
# The gate compares with a commit.
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(echo /wheels/*.whl)${EXTRAS}" && rm -r /wheels
# What is mounted belongs to the user who calls docker, and it is what this container is for.
ENV PERFAUDIT_SAFE_DIRECTORY=/src
WORKDIR /src
ENTRYPOINT ["perfaudit"]
CMD ["--help"]

# Builds a small image with the tidings binary, which runs without root.
#
#     docker build -t tidings .
#     docker run --rm tidings demo

ARG RUST=1.95

FROM rust:${RUST}-slim-bookworm AS build
WORKDIR /src
COPY . .
# The cache mounts keep downloaded crates and compiled dependencies between builds. Mounts are not part of a
# layer, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin tidings && cp target/release/tidings /tidings

FROM debian:bookworm-slim
# HTTPS to providers and TLS to MongoDB need the certificates. The binary contains the time zones.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# Docker gives a new volume the owner of the folder that it is mounted on.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tidings \
    && install -d -o tidings -g tidings /data /data/outbox
COPY --from=build /tidings /usr/local/bin/tidings
USER tidings
# tidings reads tidings.toml from here, and writes the SQLite store and the outbox here.
WORKDIR /data
VOLUME /data
ENV TIDINGS_SERVER_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["tidings"]
CMD ["serve"]
